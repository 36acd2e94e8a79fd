SELECT *
FROM publications
WHERE issued_at < coalesce($before, 'infinity'::TIMESTAMPTZ)
  AND issued_at <= coalesce($at, 'infinity'::TIMESTAMPTZ)
ORDER BY issued_at DESC
LIMIT 1
