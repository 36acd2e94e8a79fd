-- What the stored rows of $source from $start to before $end are not in `rows`. A step is changed where it is stored with
-- other figures, where it fills a gap between the class's first and last steps in `extent`, and, where $replaces, where
-- it is stored and not in `rows`.
WITH before AS (
    SELECT workload_class, step_start, tokens_in, tokens_out, observed_fraction
    FROM demand
    WHERE source = $source AND step_start >= $start AND step_start < $end
)
SELECT workload_class, step_start
FROM before
FULL JOIN rows USING (workload_class, step_start)
LEFT JOIN extent USING (workload_class)
WHERE CASE
    WHEN before.tokens_in IS NULL THEN step_start BETWEEN first_step AND last_step
    WHEN rows.tokens_in IS NULL THEN $replaces = 'yes'
    -- Sums in another order differ by rounding.
    ELSE abs(rows.tokens_in - before.tokens_in) > 1e-6 * before.tokens_in
        OR abs(rows.tokens_out - before.tokens_out) > 1e-6 * before.tokens_out
        OR abs(rows.observed_fraction - before.observed_fraction) > 1e-6
END
