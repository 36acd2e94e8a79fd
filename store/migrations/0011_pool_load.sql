-- Ready replicas and waiting requests of a pool, by step.
CREATE TABLE pool_load (
    pool VARCHAR NOT NULL,
    step_start TIMESTAMPTZ NOT NULL,
    ready_min BIGINT NOT NULL,
    ready_max BIGINT NOT NULL,
    waiting_requests DOUBLE NOT NULL
);

-- A finding may be about a pool.
ALTER TABLE findings ADD COLUMN pool VARCHAR DEFAULT '';
ALTER TABLE findings ALTER COLUMN pool SET NOT NULL;
