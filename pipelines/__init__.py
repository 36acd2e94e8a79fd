"""The composition root: sources, publishers, stages, Prefect flows and the command line."""
