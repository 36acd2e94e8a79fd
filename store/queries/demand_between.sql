SELECT *
FROM demand
WHERE step_start >= coalesce($start, '-infinity'::TIMESTAMPTZ)
  AND step_start < coalesce($end, 'infinity'::TIMESTAMPTZ)
  AND ($classes IS NULL OR list_contains($classes, workload_class))
