-- One row: what all rows of this database were made with.
CREATE TABLE settings (
    step_s DOUBLE NOT NULL
);
