SELECT * FROM {table}
WHERE as_of <= $at
QUALIFY row_number() OVER (PARTITION BY pool ORDER BY as_of DESC) = 1
