SELECT *
FROM accuracy
WHERE as_of = (SELECT max(as_of) FROM accuracy WHERE as_of <= $at)
