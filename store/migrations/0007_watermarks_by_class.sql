-- By class, and for what it was asked with. What is known by source alone is dropped: each is read from its `history` once.
DROP TABLE watermarks;
CREATE TABLE watermarks (
    source VARCHAR NOT NULL,
    workload_class VARCHAR NOT NULL,
    query_hash VARCHAR NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
