"""The closed loop, short: a spike, the service killed, Prometheus frozen, a publication damaged, within a minute."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.closed_loop.faults import Fault, edit, freeze
from benchmarks.closed_loop.judge import judge
from benchmarks.closed_loop.page import closed_loop_page
from benchmarks.closed_loop.parts import Part, Parts
from benchmarks.closed_loop.paths import Seen
from benchmarks.closed_loop.run import run
from benchmarks.closed_loop.scenario import WORKLOADS, traffic

MINUTES = 13
FLOOR = 12
PUBLISHER = """
import json, os, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
import polars as pl
from floorcast.columns import FLOORS, conform
from floorcast.types import Reason, Rung
from pipelines.publishers.schedule import build_schedule, write_schedule

folder, floor, pools = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
now = datetime.now(UTC)
reason = Reason(
    binding="tokens_out", needed_by=now, lead_s=0, quantile=0.95, tokens_in_per_s=0, tokens_out_per_s=0,
    median_tokens_per_s=0, demand_tokens_per_s=0, required_replicas=0,
).model_dump_json()
row = {"window_start": now - timedelta(minutes=1), "window_end": now + timedelta(hours=1), "min_replicas": floor}
row |= {"required_replicas": 0.0, "rung": "fresh", "reason": reason}
floors = conform(pl.DataFrame([{"pool": pool, **row} for pool in pools]), FLOORS)
schedule = build_schedule(
    mode="advisory", version=1, issued_at=now, valid_until=now + timedelta(hours=1), floors=floors,
    rungs=dict.fromkeys(pools, Rung.FRESH), settings={},
)
published = write_schedule(schedule, folder / "disk" / "published")
(folder / "kept" / "v000001.json").write_bytes(published.read_bytes())
(folder / "cycles.jsonl").write_text(json.dumps({"version": 1, "ended": now.timestamp()}) + "\\n")
time.sleep(3600)
"""
"""One publication with one floor for all pools: nothing is fitted or planned here."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Thirteen simulated minutes in 39 seconds. Floors are level, so that a busy machine is late and not wrong."""
    if shutil.which("prometheus") is None:
        pytest.fail("prometheus is not installed (apt-get install prometheus)")
    folder = tmp_path_factory.mktemp("closed-loop")
    parts = Parts(folder, speed=20)
    pools = ",".join(one.pool for one in WORKLOADS)
    command = [sys.executable, "-c", PUBLISHER, str(folder), str(FLOOR), pools]
    parts.publisher = Part("publisher", command, log=folder / "logs" / "publisher.log")
    traffics = {one.pool: traffic(one, MINUTES) for one in WORKLOADS}
    [calm] = traffics["chat-70b"].streams
    # Twenty replicas' worth from the second minute on, where twelve are the floor.
    spike = np.where(np.arange(len(calm.requests)) < 24, 1.0, 20 / 6)
    many = {name: getattr(calm, name) * spike for name in ("tokens_in", "tokens_out", "requests")}
    traffics["chat-70b"] = replace(traffics["chat-70b"], streams=(replace(calm, **many),))
    faults = (
        Fault("service_killed", "service killed", 4, 4.1, lambda p: p.service.kill(), lambda p: p.service.start()),
        Fault("prometheus_frozen", "Prometheus frozen", 6, 7, *freeze("prometheus")),
        Fault("publication_edited", "floors of 1 under an old hash", 9, 12, edit, lambda p: None, ("stays in force",)),
    )
    return run(parts, faults, traffics=traffics, tell=lambda text: None, lead_in_s=4)


@pytest.mark.server
def test_no_fault_lowers_a_floor_or_a_decision_below_it(seen: Seen) -> None:
    rows = judge(seen)
    answered = [one for one in seen.samples if one.fault is None]
    assert len(answered) >= 10
    assert {decision["floor"] for one in answered for decision in one.decisions.values()} == {FLOOR}
    assert [row.failures for row in rows] == [()] * len(rows), [vars(row) for row in rows]


@pytest.mark.server
def test_the_spike_is_answered_and_a_kill_forgets_none_of_it(seen: Seen) -> None:
    killed = seen.spans[0].began
    decided = [(one.at, one.decisions["chat-70b"]["desired"]) for one in seen.samples if one.fault is None]
    before = [desired for at, desired in decided if at < killed]
    after = [desired for at, desired in decided if at > killed]
    assert before[-1] > FLOOR
    assert after[0] >= before[-1]
    assert seen.exit_code == 0


@pytest.mark.server
def test_the_page_shows_every_fault_and_pool(seen: Seen) -> None:
    page = closed_loop_page(seen, judge(seen), {one.pool: one.workload_class for one in WORKLOADS}, "a machine")
    assert page.count('class="plot"') == len(WORKLOADS)
    assert all(span.what in page for span in seen.spans)
    assert "No fault lowered a floor" in page
