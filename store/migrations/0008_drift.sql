-- What has changed since the fit that a forecast was made by.
CREATE TABLE drift (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    as_of TIMESTAMPTZ NOT NULL,
    kind VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    value DOUBLE NOT NULL,
    reference DOUBLE NOT NULL,
    hours DOUBLE NOT NULL,
    evidence VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);
