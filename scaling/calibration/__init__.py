"""What one replica sustains within its latency targets: from load tests, and from how the fleet fared. Pure."""
