-- What consumers were told for each step when it came: the floor of the last publication issued by its start and valid.
SELECT floors.pool, floors.window_start, arg_max(floors.min_replicas, publications.issued_at) AS min_replicas
FROM floors
JOIN publications USING (run_id)
WHERE floors.window_start >= $start
  AND floors.window_start < $end
  AND publications.issued_at <= floors.window_start
  AND floors.window_start < publications.valid_until
GROUP BY floors.pool, floors.window_start
ORDER BY floors.pool, floors.window_start
