-- Steps whose stored demand was changed after it had been stored, by the last change.
CREATE TABLE reopened (
    workload_class VARCHAR NOT NULL,
    step_start TIMESTAMPTZ NOT NULL,
    source VARCHAR NOT NULL,
    reopened_at TIMESTAMPTZ NOT NULL
);
