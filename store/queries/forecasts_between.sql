SELECT *
FROM forecasts
WHERE step_start >= $start AND step_start < $end
