"""DuckDB: connection and locking, numbered migrations, typed reads and writes of polars frames."""
