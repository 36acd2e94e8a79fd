-- Two days of requests, more by day than by night. No two days are the same: a hash stands in for chance.
COPY (
    SELECT TIMESTAMP '2026-11-01' + n * INTERVAL '2 s' AS received_at,
        CASE WHEN hash(n, 'model') % 5 = 0 THEN 'qwen-coder' ELSE 'llama-70b' END AS model,
        300 + hash(n, 'prompt') % 2000 AS prompt_tokens,
        50 + hash(n, 'completion') % 700 AS completion_tokens,
        200 AS status
    FROM range(86400) AS t(n)
    WHERE hash(n, 'arrival') % 100 < 55 - 40 * cos(2 * pi() * n / 43200)
) TO 'logs/requests.parquet' (FORMAT parquet);
