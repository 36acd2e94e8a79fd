-- The rows of the latest as_of at or before $at in which anything was found, by class and metric.
SELECT * EXCLUDE (run_id)
FROM {table}
WHERE as_of <= $at
QUALIFY as_of = max(as_of) OVER (PARTITION BY workload_class, metric)
