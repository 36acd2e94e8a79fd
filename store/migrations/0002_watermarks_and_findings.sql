CREATE TABLE watermarks (
    source VARCHAR NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE findings (
    kind VARCHAR NOT NULL,
    workload_class VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    "start" TIMESTAMPTZ NOT NULL,
    "end" TIMESTAMPTZ NOT NULL,
    severity VARCHAR NOT NULL CHECK (severity IN ('info', 'warning')),
    masked BOOLEAN NOT NULL,
    evidence VARCHAR NOT NULL
);
