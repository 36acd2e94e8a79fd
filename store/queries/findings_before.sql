SELECT *
FROM findings
WHERE "start" < coalesce($at, 'infinity'::TIMESTAMPTZ)
