"""The docs page of a run's faults, from its results."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = """\
# What faults do to the service

<!-- Written by `python -m benchmarks.closed_loop.document`. Do not edit. -->

A simulated fleet lives through {hours} hours at {speed} times the speed of clocks: three pools whose replicas take
minutes to start, queue and drain, scraped by a real Prometheus, scaled to what a real `floorcast serve` decides. Floors
are planned from forecasts and published every 5 minutes meanwhile; demand has one launch that is known as an event, and
two rushes that nobody announced, one of them while floors have expired. And things break.
`python -m benchmarks.closed_loop` does it again, and fails where a floor falls under what was published, a decision
under its floor, or a decision rises or falls faster than its pace after a fault.

| fault | minutes | said | floor less published | decision less floor | no answer | late | calm | rise | fall |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
TAIL = """
- Floor less published: floor in force less the floor that the newest good publication has for then, the least of all
  pools and readings, from the fault's beginning to a quarter of an hour after it or the next fault.
- Decision less floor: the same of decision and floor in force.
- Said: what the service told of it, in `/readyz` and in its answers.
- No answer: real seconds, in which the fleet keeps the replicas that it was told last.
- Late: tokens that waited longer than promised, of those that came in that time, of the pool with most. Calm:
  the same in a run without any fault.
- Rise, fall: the most that a decision moved within a real minute until a minute after the fault, and the configured
  pace. What a floor asks for is reached at once and is no rise.

Nothing here is a cluster: replicas are simulated by the engine of [replays](../replay.md), and a stand-in for KEDA
reads `/v1/decisions` and sets them.
"""


def faults_page(document: Mapping[str, Any]) -> str:
    """The page of `benchmarks/results/closed_loop.json`."""
    detail = document["detail"]
    head = HEAD.format(hours=f"{detail['simulated_minutes'] / 60:.1f}", speed=f"{detail['speed']:g}")
    return head + "".join(map(_row, detail["faults"])) + TAIL


def _row(row: Mapping[str, Any]) -> str:
    cells = [
        row["what"],
        f"{row['begin_min']:g} to {row['end_min']:g}",
        row["said"].replace("|", "\\|") or "nothing",
        _signed(row["over_published"]),
        _signed(row["over_floor"]),
        f"{row['unanswered_s']:g} s",
        f"{row['share_late']:.2%}",
        "-" if row["share_late_calm"] is None else f"{row['share_late_calm']:.2%}",
        f"{row['rise']} of {row['rise_allowed']}",
        f"{row['fall']} of {row['fall_allowed']}",
    ]
    return f"| {' | '.join(cells)} |\n"


def _signed(value: int | None) -> str:
    return "-" if value is None else f"{value:+d}" if value else "0"


def main() -> None:
    root = Path(__file__).parents[2]
    document = json.loads((root / "benchmarks" / "results" / "closed_loop.json").read_text(encoding="utf-8"))
    page = root / "docs" / "reference" / "service-faults.md"
    page.write_text(faults_page(document), encoding="utf-8")
    sys.stdout.write(f"{page}\n")


if __name__ == "__main__":
    main()
