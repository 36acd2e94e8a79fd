-- What a pool keeps of its classes' spread, and its busiest minute, of the forecasts with that cutoff.
CREATE TABLE pool_shares (
    pool VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    share DOUBLE NOT NULL,
    peak DOUBLE NOT NULL,
    run_id VARCHAR NOT NULL
);
