"""A simulated fleet in real time that obeys the real service behind a real Prometheus, while things break."""
