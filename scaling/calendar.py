"""A pool's calendar on the grid: what it asks of each window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from floorcast.calendar import CalendarEntry
from floorcast.event import Window
from floorcast.pool import MOST_REPLICAS
from scaling.ladder import Grid
from scaling.moves import Limits


def limits(calendar: tuple[CalendarEntry, ...], grid: Grid, *, windows: int, width: int, zone: str) -> Limits:
    """The minimum and the ceiling of each of the `windows` steps from the grid's start.

    Minimums: the greatest that holds at any time within a window or within the lead after it, `width` steps in all, so
    that its replicas are there in time. Ceilings: the least that holds throughout the window; that of `hours` is raised
    to the window's minimum, and its name says so; that of `maintenance` is not. Of equal entries the first given is
    named. `zone` is that of entries without one.
    """
    steps = windows + width - 1
    least, least_name = np.zeros(steps, dtype=np.int64), np.full(steps, -1)
    most = {kind: np.full(windows, MOST_REPLICAS, dtype=np.int64) for kind in ("hours", "maintenance")}
    most_name = {kind: np.full(windows, -1) for kind in most}
    for place, entry in enumerate(calendar):
        if entry.minimum is not None:
            for start, end in _spans(entry, grid, steps, zone, whole=False):
                higher = start + np.flatnonzero(least[start:end] < entry.minimum)
                least[higher], least_name[higher] = entry.minimum, place
        if entry.ceiling is not None:
            for start, end in _spans(entry, grid, windows, zone, whole=True):
                lower = start + np.flatnonzero(most[entry.kind][start:end] > entry.ceiling)
                most[entry.kind][lower], most_name[entry.kind][lower] = entry.ceiling, place
    ahead = np.arange(windows) + np.lib.stride_tricks.sliding_window_view(least, width).argmax(axis=1)
    minimums = least[ahead]
    hours = np.maximum(most["hours"], minimums)
    works = most["maintenance"] < hours
    names = np.array([*(entry.name for entry in calendar), ""])
    minimum_names, hours_names = names[least_name[ahead]], names[most_name["hours"]]
    raised = np.char.add(np.char.add(hours_names, ", not below "), minimum_names)
    hours_names = np.where(most["hours"] < minimums, raised, hours_names)
    return Limits(
        minimums=minimums,
        ceilings=np.where(works, most["maintenance"], hours),
        minimum_rules=minimum_names.tolist(),
        ceiling_rules=np.where(works, names[most_name["maintenance"]], hours_names).tolist(),
    )


def _spans(entry: CalendarEntry, grid: Grid, steps: int, zone: str, *, whole: bool) -> Iterator[tuple[int, int]]:
    """First step and the one after the last of each occurrence: of the steps that it covers `whole`, or at all."""
    for window in entry.between(grid.start, grid.start + steps * grid.step, zone=zone, wide=not whole):
        start, end = _steps(window, grid, whole=whole)
        yield max(start, 0), min(end, steps)


def _steps(window: Window, grid: Grid, *, whole: bool) -> tuple[int, int]:
    before, after = window.start - grid.start, window.end - grid.start
    if whole:
        return -(-before // grid.step), after // grid.step
    return before // grid.step, -(-after // grid.step)
