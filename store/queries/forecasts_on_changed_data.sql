-- A run that is not known to have ended well may have begun anew after its forecasts were made: they count as older than
-- any change.
WITH made AS (
    SELECT DISTINCT workload_class, metric, cutoff, run_id
    FROM forecasts
    WHERE cutoff > coalesce($since, '-infinity'::TIMESTAMPTZ) AND cutoff <= $at
    QUALIFY $since IS NOT NULL OR cutoff = max(cutoff) OVER (PARTITION BY workload_class, metric)
)
SELECT workload_class, metric, cutoff, count(*) AS steps, min(step_start) AS first_step, max(step_start) AS last_step
FROM made
LEFT JOIN runs ON runs.run_id = made.run_id AND runs.status = 'succeeded'
JOIN reopened USING (workload_class)
WHERE reopened.step_start < made.cutoff
  AND reopened.step_start >= made.cutoff - to_seconds($look_back_s)
  AND reopened.reopened_at > coalesce(runs.started_at, '-infinity'::TIMESTAMPTZ)
GROUP BY workload_class, metric, cutoff
ORDER BY workload_class, metric, cutoff
