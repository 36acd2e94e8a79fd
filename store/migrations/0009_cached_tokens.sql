-- Of the tokens in of a step, those that the engines took from their prefix cache.
CREATE TABLE cached_tokens (
    workload_class VARCHAR NOT NULL,
    step_start TIMESTAMPTZ NOT NULL,
    cached_tokens_in DOUBLE NOT NULL
);
