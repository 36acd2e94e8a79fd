"""The figures as a page: `benchmarks/results/decisions.md`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PAIRS, WAITING, DEMO, TRACE = "traces", "waiting", "demo", "requests"
_SAYS = {
    PAIRS: "99 % of the tokens wait 10 s or less.",
    WAITING: "Classes that are on and off, judged once more where 99 % of the tokens wait 15 minutes or less, with "
    "floors levelled over that wait.",
    DEMO: "Classes of `floorcast demo`, which have the days and weeks of people: what a typical user may expect. Its "
    "planted outage is bridged. 99 % of the tokens wait 10 s or less.",
    TRACE: "Single requests, replayed by the second: what is shorter than eight days is tuned on its first half and "
    "judged on its second. Forecasts of growth need a day: within an hour there are none, and the gate has no days to "
    "go by. 99 % of the tokens wait 10 s or less.",
}
_POLICIES = ("overlay", "forecast", "floorcast", "last_value", "seasonal_naive", "managed")
_COLUMNS = ("class", "gate", "ratio on tuned days", *_POLICIES, "gap closed", "cost ratio")

_PROTOCOL = """\
# Decisions: GPU-hours at equal service

Made by `{command} --json benchmarks/results/decisions.json`, with a pair of
files for each model. Do not edit.

Minutes are drawn from each client's rate and burstiness; every class is scaled to 20 replicas at its mean. Settings are
tuned on eight days and judged on the last four. Costs are multiples of the clairvoyant's, read off each policy's front
at the promise, with its single knob swept on the judged days: utilization, beyond the 1 at which a pool's setting ends
too, or the margin of others' floors. A dash: no setting keeps the promise.

- `overlay`: target tracking of the live token rate and the backlog, alone.
- `forecast`: the same led by the forecast, whether that pays or not: the overlay's policy `lookahead`, of a pool with
  `step: 1m` and no limits on its pace. Where work may wait for minutes, floors by deadline above the overlay.
- `floorcast`: the one of the two that the gate picks. It is open where the forecast costs at most 0.98 of the overlay
  alone on the tuned days, and at most 1.02 in nine of ten draws of those days, with replacement. Closed, it is the
  overlay alone to the row: a cost ratio of 1.
- `gap closed`: (overlay - floorcast) / (overlay - clairvoyant).
"""


def render(rows: list[dict[str, Any]]) -> str:
    """The page of rows as `judge` makes them, with their `group`."""
    given = [f"--startup {startup_s:g}" for startup_s in dict.fromkeys(row["startup_s"] for row in rows)]
    groups = {row["group"] for row in rows}
    given += [option for option, group in (("--demo", DEMO), ("--trace FILE", TRACE)) if group in groups]
    command = " ".join(["python -m benchmarks.decisions --rates FILE --lengths FILE", *given])
    parts = [_PROTOCOL.format(command=command)]
    for startup_s, group in dict.fromkeys((row["startup_s"], row["group"]) for row in rows):
        own = [row for row in rows if (row["startup_s"], row["group"]) == (startup_s, group)]
        parts.append(f"## Startup {startup_s / 60:g} minutes: {group}\n\n{_SAYS[group]}\n")
        parts.append(_table(own))
    return "\n".join(parts)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [_line(_COLUMNS), _line("---" for _ in _COLUMNS)]
    for row in rows:
        costs = (_figure(row[policy]) for policy in _POLICIES)
        told = (row["class"], row["gate"], _figure(row["gate_ratio"]))
        lines.append(_line((*told, *costs, _figure(row["gap_closed"]), _figure(row["cost_ratio"]))))
    feasible = [row for row in rows if row["gap_closed"] is not None]
    if feasible:
        gaps, ratios = ([row[name] for row in feasible] for name in ("gap_closed", "cost_ratio"))
        mean = f"**{sum(gaps) / len(gaps):.3f}**"
        empty = ("",) * (1 + len(_POLICIES))
        lines.append(_line((f"mean of {len(feasible)}, worst ratio", "", *empty, mean, f"**{max(ratios):.3f}**")))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
