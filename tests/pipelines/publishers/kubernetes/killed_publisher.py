"""Publishes one floor by a configuration: `killed_publisher.py CONFIG REPLICAS`. Started to be killed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from floorcast.parsing import parse_config
from pipelines.publishers.kubernetes import Kubernetes
from pipelines.publishers.outcome import Wanted

config = parse_config(Path(sys.argv[1]).read_text(), file=sys.argv[1], environment={})
replicas = int(sys.argv[2])
wanted = Wanted(pool="chat-70b", replicas=replicas, floor=replicas, max_replicas=40, reason="a test")
Kubernetes(config.publishers[0], config).publish([wanted], apply=True, now=datetime.now(UTC))
