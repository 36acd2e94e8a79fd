-- What tuning found of each pool: its gate, the settings chosen, and what to expect of them.
CREATE TABLE tunings (
    pool VARCHAR NOT NULL,
    as_of TIMESTAMPTZ NOT NULL,
    gate VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    settings VARCHAR NOT NULL,
    result VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL
);
