DELETE FROM demand
WHERE source = $source AND step_start >= $start AND step_start < $end
