"""Which margins, utilization and overlay a pool's own past would choose, and whether its floors pay."""
