"""Speed, as a ratio against a named alternative on the same work in the same run. `python -m benchmarks.SUITE`."""
