SELECT * FROM {table}
WHERE cutoff <= $at
QUALIFY row_number() OVER (PARTITION BY pool, metric ORDER BY cutoff DESC) = 1
