SELECT coalesce(max(version) FILTER (WHERE issued_at = $issued_at), max(version) + 1, 1) AS version
FROM publications
