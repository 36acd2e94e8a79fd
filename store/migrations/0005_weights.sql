-- The share of the forecast that a candidate has: experts are combined, where one model was chosen before.
ALTER TABLE scores RENAME TO scores_before;
CREATE TABLE scores (
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    horizon VARCHAR NOT NULL,
    cutoff TIMESTAMPTZ NOT NULL,
    model VARCHAR NOT NULL,
    chosen BOOLEAN NOT NULL,
    weight DOUBLE NOT NULL,
    origins BIGINT NOT NULL,
    pinball DOUBLE,
    wape DOUBLE,
    bias DOUBLE,
    seconds DOUBLE,
    error VARCHAR,
    run_id VARCHAR NOT NULL
);
INSERT INTO scores BY NAME SELECT *, CASE WHEN chosen THEN 1 ELSE 0 END AS weight FROM scores_before;
DROP TABLE scores_before;
