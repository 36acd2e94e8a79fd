SELECT *
FROM {table}
WHERE step_start >= $start AND step_start < $end
