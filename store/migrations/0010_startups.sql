-- When the pods of a pool were asked for and first ready.
CREATE TABLE startups (
    pool VARCHAR NOT NULL,
    pod VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    ready_at TIMESTAMPTZ,
    seen_at TIMESTAMPTZ NOT NULL,
    restarts BIGINT NOT NULL
);
