"""A simulated fleet in real time that obeys `floorcast serve` behind a real Prometheus, while things break.

Exits 1 where a fault lowered a floor, or a decision below its floor, or recovery jumped. Needs Debian's prometheus and
faketime.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.closed_loop.faults import FAULTS
from benchmarks.closed_loop.judge import Row, by_minute, judge
from benchmarks.closed_loop.page import closed_loop_page
from benchmarks.closed_loop.parts import Parts, missing
from benchmarks.closed_loop.paths import Seen
from benchmarks.closed_loop.run import run
from benchmarks.closed_loop.scenario import MINUTES, WORKLOADS, traffic
from benchmarks.report import parser, write


def table(rows: list[Row]) -> Table:
    made = Table(title="What each fault did", title_justify="left")
    for name in ("fault", "minutes", "what the service said"):
        made.add_column(name, overflow="fold")
    for name in ("floor over published", "decision over floor", "no answer", "late", "without fault", "rise", "fall"):
        made.add_column(name, justify="right")
    made.add_column("held", overflow="fold")
    for row in rows:
        made.add_row(
            row.what,
            f"{row.begin_min:g} to {row.end_min:g}",
            row.said,
            _number(row.over_published),
            _number(row.over_floor),
            f"{row.unanswered_s:g} s",
            f"{row.share_late:.2%}",
            "" if row.share_late_calm is None else f"{row.share_late_calm:.2%}",
            f"{row.rise} of {row.rise_allowed}",
            f"{row.fall} of {row.fall_allowed}",
            "; ".join(row.failures) or "yes",
        )
    return made


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:+d}" if value else "0"


def detail(seen: Seen, rows: list[Row]) -> dict[str, object]:
    cycles = [one for one in seen.cycles if "version" in one]
    return {
        "speed": seen.speed,
        "simulated_minutes": seen.minutes,
        "faults": [asdict(row) for row in rows],
        "pools": {
            name: {"late_share": float(path.late.sum() / path.tokens.sum())} for name, path in seen.paths.items()
        },
        "by_minute": by_minute(seen),
        "readings": len(seen.samples),
        "cycles": {"published": len(cycles), "failed": len(seen.cycles) - len(cycles)},
    }


def main() -> None:
    arguments = parser("closed_loop", __doc__ or "")
    arguments.add_argument("--page", type=Path, help="also write the page of the run to this file")
    arguments.add_argument("--faults", default="all", help="all, none, or the name of one; may be several with commas")
    arguments.add_argument("--speed", type=float, default=20.0, help="how many times faster than clocks")
    arguments.add_argument("--minutes", type=int, default=MINUTES, help="simulated minutes")
    arguments.add_argument("--keep", type=Path, help="folder of the run's files; models fitted there are used again")
    arguments.add_argument("--calm", type=Path, help="results of a run with --faults none, to compare with")
    given = arguments.parse_args()
    names = [fault.name for fault in FAULTS] if given.faults == "all" else given.faults.split(",")
    unknown = set(names) - {fault.name for fault in FAULTS} - {"none"}
    if unknown:
        arguments.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(fault.name for fault in FAULTS)}")
    if lacks := missing():
        raise SystemExit(f"not installed: {'; '.join(lacks)}")
    chosen = [fault for fault in FAULTS if fault.name in names and fault.end_min < given.minutes]
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 200)
    with tempfile.TemporaryDirectory() as name:
        parts = Parts(given.keep or Path(name), speed=given.speed)
        console.print("fitting models to two weeks")
        parts.prepare()
        traffics = {one.pool: traffic(one, given.minutes) for one in WORKLOADS}
        seen = run(parts, chosen, traffics=traffics, tell=console.print)
    calm = json.loads(given.calm.read_text(encoding="utf-8"))["detail"]["by_minute"] if given.calm else None
    rows = judge(seen, calm)
    failed = [row for row in rows if row.failures]
    held = [one for one in (row.over_published for row in rows) if one is not None]
    write(
        "closed_loop",
        summary={
            "faults": float(len(chosen)),
            "rows_failed": float(len(failed)),
            "least_floor_over_published": float(min(held, default=0)),
            "late_share_worst_pool": rows[-1].share_late,
        },
        detail=detail(seen, rows),
        out=given.json,
    )
    console.print(table(rows))
    if given.page:
        machine = f"{platform.machine()}, Python {platform.python_version()}."
        given.page.write_text(
            closed_loop_page(seen, rows, {one.pool: one.workload_class for one in WORKLOADS}, machine), encoding="utf-8"
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
