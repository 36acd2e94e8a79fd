"""Readings that repeat exactly: a signal that is stuck, an interval delivered twice."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from floorcast.columns import Metric
from forecasting.quality.grid import HOUR, Finding, Grid, runs

MIN_REPEATS = 6
"""Readings in a row that must repeat; chance has no part in so many."""

MAX_EQUAL_SHARE = 0.05
"""A class of which more than this share of readings equals the one before has a constant load, not a stuck signal."""

MAX_DUPLICATED_SHARE = 0.2
"""A class of which more than this share repeats was generated or replayed like that."""

Hashes = npt.NDArray[np.uint64]


def flat_lines(grid: Grid) -> list[Finding]:
    """Both metrics exactly as in the step before, not zero, for an hour and six steps at least.

    The first of the equal readings was real, and is kept. Not a finding where the class's readings repeat anyway, or
    where it reads just the same at other times too, as with few requests of one size or a probe alone at night.
    """
    ins, outs = grid.tokens[Metric.TOKENS_IN], grid.tokens[Metric.TOKENS_OUT]
    busy = np.zeros(grid.shape, dtype=np.bool_)
    busy[:, 1:] = (ins[:, 1:] + outs[:, 1:] > 0) & np.isfinite(ins[:, :-1])
    equal = busy.copy()
    equal[:, 1:] &= (ins[:, 1:] == ins[:, :-1]) & (outs[:, 1:] == outs[:, :-1])
    alike = equal.copy()  # requests that repeat betray a constant load whose tokens differ a little
    alike[:, 1:] |= busy[:, 1:] & (grid.requests[:, 1:] == grid.requests[:, :-1])
    least = max(MIN_REPEATS, math.ceil(HOUR / grid.step))
    by_row: dict[int, list[tuple[int, int]]] = {}
    for row, start, stop in runs(equal, least=least):
        by_row.setdefault(row, []).append((start, stop))
    found = []
    for row, spans in by_row.items():
        flat = sum(stop - start for start, stop in spans)
        pairs = int(busy[row].sum()) - flat
        if pairs < 4 * least or int(alike[row].sum()) - flat > MAX_EQUAL_SHARE * pairs:
            continue
        for start, stop in spans:
            level_in, level_out = float(ins[row, start]), float(outs[row, start])
            if int(((ins[row] == level_in) & (outs[row] == level_out)).sum()) > stop - start + 1:
                continue
            evidence: dict[str, float | int | str] = {
                "steps": stop - start,
                "tokens_in": level_in,
                "tokens_out": level_out,
            }
            stuck = Finding("flat_line", row, start, stop, evidence, severity="warning", masked=flat <= pairs)
            found.append(stuck)
    return found


def duplicated_intervals(grid: Grid) -> list[Finding]:
    """Six steps or more, none zero and no two alike, that repeat earlier ones of the class exactly in both metrics."""
    found = []
    repeats = _repeats_of(grid)
    readable = grid.present.sum(axis=1)
    for row, source in repeats.items():
        spans = _spans(source)
        steps = sum(stop - start for start, stop, _ in spans)
        if steps > MAX_DUPLICATED_SHARE * readable[row]:
            evidence: dict[str, float | int | str] = {"steps": steps, "share": steps / float(readable[row])}
            first, last = spans[0][0], max(stop for _, stop, _ in spans)
            found.append(Finding("duplicated_interval", row, first, last, evidence, severity="warning"))
            continue
        for start, stop, lag in spans:
            evidence = {"steps": stop - start, "repeats": f"{grid.time(start - lag):%Y-%m-%dT%H:%MZ}"}
            found.append(Finding("duplicated_interval", row, start, stop, evidence, severity="warning", masked=True))
    return found


def _repeats_of(grid: Grid) -> dict[int, dict[int, int]]:
    """By class: the beginning of every window that repeats an earlier one, and how many steps earlier that is."""
    ins, outs = grid.tokens[Metric.TOKENS_IN], grid.tokens[Metric.TOKENS_OUT]
    width = MIN_REPEATS
    if grid.shape[1] < width:
        return {}
    usable = np.isfinite(ins) & (ins + outs > 0)
    windows = np.lib.stride_tricks.sliding_window_view(usable, width, axis=1)
    rows, places = np.nonzero(np.all(windows, axis=-1))
    hashes = _window_hashes(ins, outs, width)[rows, places]
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    repeats: dict[int, dict[int, int]] = {}
    for earlier, later in zip(order[same].tolist(), order[same + 1].tolist(), strict=True):
        row, place, origin = int(rows[later]), int(places[later]), int(places[earlier])
        here, there = (np.stack([m[row, at : at + width] for m in (ins, outs)]) for at in (place, origin))
        if rows[earlier] == row and (here == there).all() and len(np.unique(here, axis=1).T) == width:
            repeats.setdefault(row, {})[place] = place - origin
    return repeats


def _window_hashes(ins: npt.NDArray[np.float64], outs: npt.NDArray[np.float64], width: int) -> Hashes:
    """Equal for windows that are equal, within a class; otherwise almost surely not."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    classes = np.arange(len(ins), dtype=np.uint64)[:, None] * factor
    single = (ins.view(np.uint64) * factor) ^ (outs.view(np.uint64) + classes)
    single = (single ^ (single >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    steps = single.shape[1] - width + 1
    windows: Hashes = np.zeros((len(ins), steps), dtype=np.uint64)
    for offset in range(width):
        windows = windows * np.uint64(0x94D049BB133111EB) + single[:, offset : offset + steps]
    return windows


def _spans(source: dict[int, int]) -> list[tuple[int, int, int]]:
    """Windows that go on at the same distance from their origin as (start, stop, distance)."""
    spans: list[tuple[int, int, int]] = []
    for place, lag in sorted(source.items()):
        if spans and spans[-1][2] == lag and place <= spans[-1][1]:
            spans[-1] = (spans[-1][0], place + MIN_REPEATS, lag)
        else:
            spans.append((place, place + MIN_REPEATS, lag))
    return spans
