-- What a pool keeps of its classes' spread, and its busiest minute, for the forecasts made at as_of.
CREATE TABLE pool_shares (
    pool VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    as_of TIMESTAMPTZ NOT NULL,
    share DOUBLE NOT NULL,
    peak DOUBLE NOT NULL,
    run_id VARCHAR NOT NULL
);
