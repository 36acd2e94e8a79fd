"""The stages of a cycle as plain functions: (project, now) in, result out. No Prefect here.

Each opens the store only to read what it needs and to write what it made, since DuckDB lets one process in at
a time; what takes long happens in between. `run_stage` in `runner` is how the command line and the flows call them.
"""
