SELECT workload_class, min(step_start) AS first_step, max(step_start) AS last_step, count(*) AS steps
FROM demand
WHERE source = coalesce($source, source)
GROUP BY workload_class
ORDER BY workload_class
