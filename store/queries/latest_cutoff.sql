-- The rows of the latest cutoff at or before $at, by class and metric. {table} is fits, scores or forecasts.
WITH latest AS (
    SELECT workload_class, metric, max(cutoff) AS cutoff
    FROM {table}
    WHERE cutoff <= $at
    GROUP BY workload_class, metric
)
SELECT * EXCLUDE (run_id)
FROM {table}
JOIN latest USING (workload_class, metric, cutoff)
