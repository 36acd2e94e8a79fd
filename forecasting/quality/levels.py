"""Levels that are not what they were: units that changed, shifts that last, spikes that do not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from floorcast.columns import Metric
from forecasting.quality.grid import HOUR, Finding, Flags, Grid, median, runs
from forecasting.series import FloatArray

UNITS = (60, 1000)
UNIT_TOLERANCE = 1.3
MAX_WANDER = 4.0
"""Largest over smallest reading of a level that is stable enough for a jump from or to it to be told."""
MIN_DAYS = 4
"""Days of which the usual at a time of day can be told, although one of them may be a jump's."""
MAX_JUMPS = 4
"""A class that jumps more often than this does so by nature."""

SHIFT = 1.5
SHIFT_HOURS = 12
SHIFT_WINDOW = 25
BASELINE_WEEKS = 3

SPIKE = 3.0
SPIKE_Z = 8.0
SPIKE_WINDOW = 7
MAX_SPIKE = HOUR
MAX_SPIKE_SHARE = 0.005
"""A class with a larger share of its steps in spikes is bursty by nature."""
MIN_SPREAD = 0.05


@dataclass(frozen=True)
class _Jump:
    place: int
    """The first step at the new level."""
    back: int
    """The first step that is no longer at the old one: `place`, or one before where the change fell inside a step."""
    factor: float
    unit: float


def unit_jumps(grid: Grid) -> list[Finding]:
    """A stable level that becomes about 60 or 1000 times as high or low from one step to the next or next but one.

    Only at a level that the class never had otherwise, and not where requests are known and move with it: that is
    traffic. Masked until it comes back; one that stays may be the truth.
    """
    found = []
    for metric, rates in grid.rates.items():
        by_row: dict[int, list[_Jump]] = {}
        for row, jump in _jumps(_without_shape(rates, grid), max(grid.hour_steps, 3)):
            by_row.setdefault(row, []).append(jump)
        for row, jumps in by_row.items():
            if len(jumps) <= MAX_JUMPS:
                found += _episodes(grid, metric, row, jumps)
    return found


def _without_shape(rates: FloatArray, grid: Grid) -> FloatArray:
    """The rates over the usual ones at the same time of day, so that a slope is no part of a jump, nor hides one.

    As they are where there are too few days to tell, or nothing is usual at that time.
    """
    day = timedelta(days=1) // grid.step
    days = -(-rates.shape[1] // day)
    if days < MIN_DAYS:
        return rates
    daily = np.pad(rates, ((0, 0), (0, days * day - rates.shape[1])), constant_values=np.nan).reshape(-1, days, day)
    # Of each day's own level, so that a jump that stays moves the days, not the times of day.
    level = median(daily)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        usual = median(np.where(level > 0, daily / level, np.nan).transpose(0, 2, 1))
    flat: FloatArray = rates / np.tile(np.where(usual > 0, usual, 1.0), days)[:, : rates.shape[1]]
    return flat


def _jumps(rates: FloatArray, width: int) -> list[tuple[int, _Jump]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rates)
        change = np.abs(logs[:, 2:] - logs[:, :-2])
    near = np.any([np.abs(change - math.log(unit)) < math.log(2.5) for unit in UNITS], axis=0)
    rows, places = np.nonzero(near)
    places += 2
    inside = (places - 1 - width >= 0) & (places + width <= rates.shape[1])
    rows, places = rows[inside], places[inside]
    span = np.arange(width)
    before = rates[rows[:, None], (places - 1 - width)[:, None] + span]
    after = rates[rows[:, None], places[:, None] + span]
    stable = [
        (side > 0).all(axis=1) & (side.max(axis=1, initial=0) <= MAX_WANDER * side.min(axis=1, initial=np.inf))
        for side in (before, after)
    ]
    keep = np.flatnonzero(stable[0] & stable[1])
    jumps: list[tuple[int, _Jump]] = []
    for index in keep.tolist():
        row, place = int(rows[index]), int(places[index])
        old, new = float(np.median(before[index])), float(np.median(after[index]))
        unit = next((u for u in UNITS if abs(abs(math.log(new / old)) - math.log(u)) < math.log(UNIT_TOLERANCE)), None)
        follows = jumps and jumps[-1][0] == row and place - jumps[-1][1].place <= width
        if unit is None or follows:
            continue
        between = rates[row, place - 1]
        whole = bool(old / 2 <= between <= old * 2)
        factor = new / old
        jumps.append((row, _Jump(place, place if whole else place - 1, factor, unit if factor > 1 else 1 / unit)))
    return jumps


def _episodes(grid: Grid, metric: Metric, row: int, jumps: list[_Jump]) -> list[Finding]:
    last = int(np.flatnonzero(grid.present[row])[-1]) + 1
    episodes: list[tuple[_Jump, int, bool]] = []
    pending = list(jumps)
    while pending:
        jump = pending.pop(0)
        returns = bool(pending) and math.isclose(pending[0].unit * jump.unit, 1)
        episodes.append((jump, pending.pop(0).place if returns else last, returns))
    rates, others = grid.rates[metric][row], grid.rates[metric][row].copy()
    for jump, stop, _ in episodes:
        others[jump.back : stop] = np.nan
    found = []
    for jump, stop, returns in episodes:
        inside = rates[jump.back : stop]
        traffic = _requests_moved_alike(grid.requests[row], jump, max(grid.hour_steps, 3))
        if traffic or not _is_new_level(inside, others, up=jump.factor > 1):
            continue
        evidence: dict[str, float | int | str] = {
            "factor": jump.factor,
            "tokens_per_s": float(np.nanmedian(inside)),
            "usual_tokens_per_s": float(np.nanmedian(others)),
            "came_back": "yes" if returns else "no",
        }
        one = Finding("unit_jump", row, jump.back, stop, evidence, metric, severity="warning", masked=returns)
        found.append(one)
    return found


def _is_new_level(inside: FloatArray, others: FloatArray, *, up: bool) -> bool:
    usual = others[np.isfinite(others) & (others > 0)]
    if not usual.size:
        return False
    level = float(np.nanmedian(inside))
    if up:
        return level > 2 * float(np.quantile(usual, 0.99))
    return 0 < level < float(np.quantile(usual, 0.01)) / 2


def _requests_moved_alike(requests: FloatArray, jump: _Jump, width: int) -> bool:
    """Whether requests changed by half of the jump (in orders of magnitude) or more; False where not known."""
    before = requests[jump.place - 1 - width : jump.place - 1]
    after = requests[jump.place : jump.place + width]
    old, new = float(median(before)), float(median(after))
    if not (old > 0 and new > 0):
        return False
    return math.log(new / old) / math.log(jump.factor) > 0.5


def level_shifts(grid: Grid) -> list[Finding]:
    """Half a day or more in which the hours read 1.5 times what the same hours of up to three weeks before did."""
    blocks_per_week = timedelta(weeks=1) / (grid.hour_steps * grid.step)
    if not blocks_per_week.is_integer():
        return []
    week, found = int(blocks_per_week), []
    least = max(math.ceil(SHIFT_HOURS * HOUR / (grid.hour_steps * grid.step)), 2)
    for metric, rates in grid.rates.items():
        hours = _by_hour(rates, grid.hour_steps)
        if hours.shape[1] <= week:
            continue
        padded = np.pad(hours, ((0, 0), (BASELINE_WEEKS * week, 0)), constant_values=np.nan)
        size = hours.shape[1]
        past = [padded[:, (BASELINE_WEEKS - weeks) * week :][:, :size] for weeks in range(1, BASELINE_WEEKS + 1)]
        usual = median(np.stack(past, axis=-1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(hours / usual)
        ratio = np.where(np.isfinite(ratio), ratio, np.nan)  # idle hours have no level
        windows = _windows(ratio, SHIFT_WINDOW)
        enough = np.isfinite(windows).sum(axis=-1) > SHIFT_WINDOW // 2
        smooth = np.where(enough, median(windows), np.nan)
        for sign in (1, -1):
            for row, start, stop in runs(sign * smooth > math.log(SHIFT), least=least):
                factor = math.exp(float(median(ratio[row, start:stop])))
                if not sign * math.log(factor) > math.log(SHIFT):
                    continue  # the hours around carried the median, not these
                evidence: dict[str, float | int | str] = {
                    "factor": factor,
                    "tokens_per_s": float(np.nanmedian(hours[row, start:stop])),
                    "usual_tokens_per_s": float(np.nanmedian(usual[row, start:stop])),
                }
                first, end = start * grid.hour_steps, stop * grid.hour_steps
                found.append(Finding("level_shift", row, first, end, evidence, metric=metric))
    return found


def spikes(grid: Grid) -> list[Finding]:
    """Up to an hour at three times the hours around it or more, far outside of what the class does.

    Those hours are read at the second highest of their medians, so that a job that runs for some hours is none.
    """
    found = []
    for metric, rates in grid.rates.items():
        windows = np.nan_to_num(_windows(_by_hour(rates, grid.hour_steps), SPIKE_WINDOW))
        usual = np.repeat(np.partition(windows, -2, axis=-1)[..., -2], grid.hour_steps, axis=1)
        known = rates[:, : usual.shape[1]]
        if not known.size:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.log(known / usual)
        excess = np.where(np.isfinite(excess), excess, np.nan)
        beyond = excess - median(excess)[:, None]
        spread = np.maximum(1.4826 * median(np.abs(beyond)), MIN_SPREAD)
        high: Flags = excess > math.log(SPIKE)
        far = beyond > SPIKE_Z * spread[:, None]
        high &= ((high & far).mean(axis=1) <= MAX_SPIKE_SHARE)[:, None]
        for row, start, stop in runs(high):
            if far[row, start:stop].any() and (stop - start) * grid.step <= MAX_SPIKE:
                top = start + int(np.argmax(known[row, start:stop]))
                evidence: dict[str, float | int | str] = {
                    "tokens_per_s": float(known[row, top]),
                    "usual_tokens_per_s": float(usual[row, top]),
                    "z": float(beyond[row, top] / spread[row]),
                }
                found.append(Finding("spike", row, start, stop, evidence, metric=metric))
    return found


def _by_hour(rates: FloatArray, hour_steps: int) -> FloatArray:
    """Medians of whole hours from the first step on; the steps after the last whole hour are left out."""
    whole = rates.shape[1] // hour_steps
    return median(rates[:, : whole * hour_steps].reshape(len(rates), whole, hour_steps))


def _windows(values: FloatArray, width: int) -> FloatArray:
    """The `width` values around each, along a new last axis; NaN past the ends."""
    padded = np.pad(values, ((0, 0), (width // 2, width // 2)), constant_values=np.nan)
    if not values.size:
        return np.full((*values.shape, width), np.nan)
    windows: FloatArray = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
    return windows
