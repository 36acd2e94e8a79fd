-- No primary keys: their indexes must fit in memory and are rebuilt from the write-ahead log after a crash.
-- Writers replace whole units of rows in one transaction and refuse duplicate keys, and one process holds
-- the database at a time, so keys stay unique without them.

CREATE TABLE demand (
    workload_class VARCHAR NOT NULL,
    step_start TIMESTAMPTZ NOT NULL,
    tokens_in DOUBLE NOT NULL,
    tokens_out DOUBLE NOT NULL,
    requests DOUBLE,
    peak_tokens_in_per_s DOUBLE,
    peak_tokens_out_per_s DOUBLE,
    observed_fraction DOUBLE NOT NULL CHECK (observed_fraction > 0 AND observed_fraction <= 1),
    source VARCHAR NOT NULL
);

CREATE TABLE rejects (
    source VARCHAR NOT NULL,
    file VARCHAR NOT NULL,
    row_number BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    raw VARCHAR
);

CREATE TABLE fits (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    horizon VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    model VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    parameters VARCHAR NOT NULL,
    margins VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

CREATE TABLE scores (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    horizon VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    model VARCHAR NOT NULL,
    chosen BOOLEAN NOT NULL,
    origins BIGINT NOT NULL,
    pinball DOUBLE,
    wape DOUBLE,
    bias DOUBLE,
    seconds DOUBLE,
    error VARCHAR,
    run_id VARCHAR NOT NULL
);

CREATE TABLE forecasts (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    step_start TIMESTAMPTZ NOT NULL,
    model VARCHAR NOT NULL,
    q10 DOUBLE NOT NULL,
    q25 DOUBLE NOT NULL,
    q50 DOUBLE NOT NULL,
    q75 DOUBLE NOT NULL,
    q90 DOUBLE NOT NULL,
    q95 DOUBLE NOT NULL,
    q97_5 DOUBLE NOT NULL,
    q99 DOUBLE NOT NULL,
    run_id VARCHAR NOT NULL
);

CREATE TABLE floors (
    pool VARCHAR NOT NULL,
    window_start TIMESTAMPTZ NOT NULL,
    window_end TIMESTAMPTZ NOT NULL,
    min_replicas BIGINT NOT NULL,
    required_replicas DOUBLE,
    rung VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);

CREATE TABLE accuracy (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    horizon VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    first_step TIMESTAMPTZ NOT NULL,
    last_step TIMESTAMPTZ NOT NULL,
    steps BIGINT NOT NULL,
    wape DOUBLE,
    mase DOUBLE,
    pinball DOUBLE,
    calibration DOUBLE,
    bias DOUBLE,
    run_id VARCHAR NOT NULL,
    as_of TIMESTAMPTZ NOT NULL
);

CREATE TABLE publications (
    version BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    issued_at TIMESTAMPTZ NOT NULL,
    valid_until TIMESTAMPTZ NOT NULL,
    mode VARCHAR NOT NULL,
    content_hash VARCHAR NOT NULL,
    schedule VARCHAR NOT NULL
);

CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    as_of TIMESTAMPTZ NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    status VARCHAR NOT NULL,
    detail VARCHAR
);
