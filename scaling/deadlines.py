"""Latency-tolerant classes, planned by their deadline: their work goes where the pool has room, in time.

A class whose `slo.max_wait` is two steps or longer may wait. What arrives in a step is done in that step or in one of
the next D = max_wait / step - 1 whole steps, oldest first, so that even what comes at the step's very beginning is
served within max_wait. When, is chosen so that the replicas its pool requires are as level as can be
(`scaling.levelling`): the peak first, then the rest. Several such classes of a pool are levelled in turn, those with
the least wait first, until nothing moves.

Conservative on purpose: each step's work is its quantile, although a sum over the wait spreads less than one step;
tokens in and out of a request are done together; all of what the grid knows is done by its end, so that the plan's
grid is the longest wait longer than its windows; and what arrived in the last D steps counts as still waiting, but for
what the floors in force since had room for.

More work, or a longer grid, may lower a single step: where the greater of two terms decides, the mix is found by trial,
and a later end leaves more room before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.config import Config
from scaling.capacity import Floats
from scaling.demand import METRICS
from scaling.ladder import Figures, Grid, Waiting
from scaling.levelling import Ramp, level, ramps

_REPLAYED = 4
"""Waits that the past is replayed for, to say what still waits."""

_ROUNDS, _SETTLED = 4, 0.01
"""Several classes of a pool are levelled in turn at most so often, or until no step's work moves by more than this
share of the peak of their work."""

_MIXES, _BETTER = 4, 2e-3
"""Plans tried where the greater of two terms decides, while each lowers the peak by at least so much, relative."""


@dataclass(frozen=True)
class _Place:
    """Where a class is served: the pool by metric; replicas required for a token per second, [metrics]; the positions
    of all classes served there, by metric; and whether the two terms add up or the greater decides."""

    pools: tuple[str, ...]
    weight: Floats
    beside: tuple[tuple[int, ...], ...]
    adds: bool


@dataclass(frozen=True)
class _Past:
    """What was observed before the grid's start: `rates` [classes, metrics, steps] in tokens per second, NaN where
    not observed, and by pool the `floors` [steps] in force, NaN where none was."""

    rates: Floats
    floors: dict[str, Floats]


def replayed(config: Config) -> timedelta:
    """How far back `schedule_deadlines` looks at demand and at the floors in force; nothing where no class may wait."""
    return (1 + _REPLAYED) * config.longest_wait_steps * config.step


def schedule_deadlines(
    config: Config, figures: Figures, grid: Grid, *, history: pl.DataFrame, in_force: pl.DataFrame | None
) -> Figures:
    """The figures with the work of latency-tolerant classes moved to when it is done.

    `history` is a DEMAND frame up to the grid's start, `in_force` the floors that were in force in the steps before it
    (columns pool, window_start, min_replicas); without one, all that arrived within the wait is still to be done.
    Quantile and median of a class are moved together; the rung of a step becomes the worst among those whose work may
    be done in it. A step at which a pool's demand is not known is left as it is, and work does not wait across it;
    where the first steps are not known, what still waits is done in those after them.
    """
    waits = {name: config.wait_steps(name) for name in figures.classes}
    tolerant = sorted((wait, name) for name, wait in waits.items() if wait)
    if not tolerant:
        return figures
    past = _past(config, figures, grid, history, in_force, steps=replayed(config) // grid.step)
    quantile, median, rung = figures.quantile.copy(), figures.median.copy(), figures.rung.copy()
    moved = replace(figures, quantile=quantile, median=median, rung=rung, waiting={})
    for together in _sharing(config, [name for _, name in tolerant]):
        places = {name: _place(config, figures, name) for name in together}
        rows = [figures.classes.index(name) for name in together]
        for _ in range(_ROUNDS if len(together) > 1 else 1):
            before = quantile[rows]
            for name in together:
                moved.waiting[name] = _schedule(name, waits[name], config.step, places[name], figures, moved, past)
            change = np.nan_to_num(np.abs(quantile[rows] - before)).max(axis=(0, 2))
            if (change <= _SETTLED * np.nan_to_num(quantile[rows]).sum(axis=0).max(axis=1)).all():
                break
    return moved


def _sharing(config: Config, tolerant: list[str]) -> list[list[str]]:
    """The classes by the pools planned together that serve them: each group is levelled on its own."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in tolerant:
        pool = config.pool_of(name, METRICS[0])
        groups.setdefault(config.together.get(pool, (pool,)), []).append(name)
    return list(groups.values())


def _place(config: Config, figures: Figures, name: str) -> _Place:
    """A prefill and a decode pool are levelled on the sum of their replicas."""
    position = {other: at for at, other in enumerate(figures.classes)}
    served = [config.pool_of(name, metric) for metric in METRICS]
    capacities = [config.pools[pool].capacity for pool in served]
    sustained = np.array([capacities[0].prefill_tokens_per_s, capacities[1].decode_tokens_per_s])
    return _Place(
        pools=tuple(served),
        weight=1 / (sustained * [capacity.target_utilization for capacity in capacities]),
        beside=tuple(tuple(position[other] for other in config.classes_of(pool)) for pool in served),
        adds=served[0] != served[1] or capacities[0].combine == "sum",
    )


def _schedule(
    name: str, wait: int, step: timedelta, place: _Place, given: Figures, moved: Figures, past: _Past
) -> Waiting:
    """Level one class over what `moved` has of the others, in place, from what arrives by `given`."""
    own = given.classes.index(name)
    known = _known(given.quantile, place)
    arriving, work = given.quantile[own], _work(given.quantile[own], place)
    finished = np.arange(arriving.shape[1])
    others = _others(moved.quantile, own, place)
    waiting = None
    for first, end in _runs(known):
        span = slice(first, end)
        waiting = _carried(own, wait, place, given, past, first) if waiting is None else np.zeros((len(METRICS), wait))
        arrived = np.concatenate([_work(waiting, place), work[span]])
        total = np.concatenate([[0.0], np.cumsum(arrived)])
        done = _levelled(np.hstack([waiting, arriving[:, span]]), total, others[:, span], place, wait)
        for rates, figure in ((given.quantile[own], moved.quantile[own]), (given.median[own], moved.median[own])):
            for metric in range(len(METRICS)):
                came = np.concatenate([[0.0], np.cumsum(np.concatenate([waiting[metric], rates[metric, span]]))])
                figure[metric, span] = np.diff(np.interp(done, total, came))
        finished[span] = first + np.searchsorted(done[1:], total[wait + 1 :] * (1 - 1e-9))
        moved.rung[own][:, span] = _worst_before(given.rung[own][:, span], wait)
    return Waiting(wait=(wait + 1) * step, arriving=arriving, finished=np.minimum(finished, arriving.shape[1] - 1))


def _levelled(came: Floats, total: Floats, others: Floats, place: _Place, wait: int) -> Floats:
    """[1 + steps] the work done by each boundary of the steps.

    `came` [metrics, wait + steps] are tokens per second, `total` [1 + wait + steps] that work added up, `others`
    [metrics, steps] what the other classes require. Where the greater of two terms decides, what a unit of work is made
    of depends on what is done when: begun with the mix of the wait, then with that of the plan before; the best counts.
    """
    steps = others.shape[1]
    due = np.append(total[:steps], total[-1]).tolist()
    loads = np.nan_to_num(came) * place.weight[:, None]
    reached = np.concatenate([np.zeros((len(METRICS), 1)), loads.cumsum(axis=1)], axis=1)
    mix = _mix(came, place, wait)
    best, least = total, np.inf
    for _ in range(1 if place.adds else _MIXES):
        done = np.concatenate([[0.0], np.cumsum(level(_ramps(others, mix, place), total[wait:].tolist(), due))])
        done[-1] = total[-1]
        each = np.diff([np.interp(done, total, series) for series in reached], axis=1)
        peak = (others + each).max()
        better = peak < least * (1 - _BETTER)
        if peak < least:
            best, least = done, peak
        if not better:
            break
        whole = each.sum(axis=0)
        mix = np.where(whole > 0, each / np.where(whole > 0, whole, 1), mix)
    return best


def _known(rates: Floats, place: _Place) -> npt.NDArray[np.bool_]:
    """[classes, metrics, steps] to [steps]: where the demand of all classes served there is known."""
    found: npt.NDArray[np.bool_] = ~np.any(
        [np.isnan(rates[list(beside), metric]).any(axis=0) for metric, beside in enumerate(place.beside)], axis=0
    )
    return found


def _work(rates: Floats, place: _Place) -> Floats:
    """[metrics, steps] to [steps]: replicas that this work requires, both kinds added up."""
    work: Floats = (np.nan_to_num(rates) * place.weight[:, None]).sum(axis=0)
    return work


def _others(quantile: Floats, own: int, place: _Place) -> Floats:
    """[metrics, steps]: replicas that the other classes of the pool require."""
    rows = [
        quantile[[at for at in beside if at != own], metric] * place.weight[metric]
        for metric, beside in enumerate(place.beside)
    ]
    return np.stack([np.nan_to_num(row).sum(axis=0) for row in rows])


def _mix(rates: Floats, place: _Place, wait: int) -> Floats:
    """[metrics, wait + steps] to [metrics, steps]: each metric's share of the work that may be done in a step."""
    loads = np.nan_to_num(rates) * place.weight[:, None]
    windows = np.lib.stride_tricks.sliding_window_view(loads, wait + 1, axis=1).sum(axis=2)
    total = windows.sum(axis=0)
    share: Floats = np.where(total > 0, windows / np.where(total > 0, total, 1), 1 / len(METRICS))
    return share


def _ramps(others: Floats, mix: Floats, place: _Place) -> list[Ramp]:
    return ramps(others.sum(axis=0)[None], np.ones((1, others.shape[1]))) if place.adds else ramps(others, mix)


def _carried(own: int, wait: int, place: _Place, figures: Figures, past: _Past, first: int) -> Floats:
    """[metrics, wait] what still waits at the `first` known step, by when it arrived.

    What the steps before it did is not known, so it may have been nothing: what was due in them is due at once.
    """
    waiting = _still_waiting(own, wait, place, past, coming=figures.quantile[own, :, first])
    late = min(first, wait - 1)
    carried = np.zeros_like(waiting)
    carried[:, 0] = waiting[:, : late + 1].sum(axis=1)
    carried[:, 1 : wait - late] = waiting[:, late + 1 :]
    return carried


def _still_waiting(own: int, wait: int, place: _Place, past: _Past, *, coming: Floats) -> Floats:
    """[metrics, wait] tokens per second of the last steps' arrivals that are not done yet.

    All of them were waiting four waits ago; since then the floors in force, in advisory mode too, did what they had
    room for beside the other classes as observed. Where no floor was in force, or another class was not observed,
    nothing was done. What has waited longer than the wait is late, and is left to those who see the queue. A step that
    was not observed counts as much as the greatest that was, or as what is `coming` first [metrics].
    """
    rates = past.rates[own, :, -(1 + _REPLAYED) * wait :]
    standing = np.fmax(np.nan_to_num(np.fmax.reduce(rates, axis=1)), np.nan_to_num(coming))
    rates = np.where(np.isnan(rates), standing[:, None], rates)
    work = _work(rates, place)
    steps = rates.shape[1]
    beside = past.rates[:, :, -steps:]
    seen = _known(beside, place)
    floors = np.stack([past.floors[pool][-steps:] for pool in place.pools])
    room = _room(floors[:, wait:], _others(beside, own, place)[:, wait:], _mix(rates, place, wait), place)
    done = np.where(seen[wait:], room, 0.0)
    within = np.convolve(work, np.ones(wait), "valid")
    waiting = within[0]
    for at in range(wait, steps):
        waiting = min(max(waiting + work[at] - done[at - wait], 0.0), within[at - wait + 1])
    newer = np.cumsum(work[: -wait - 1 : -1])[::-1] - work[-wait:]
    kept = np.clip((waiting - newer) / np.where(work[-wait:] > 0, work[-wait:], 1), 0, 1)
    left: Floats = rates[:, -wait:] * kept
    return left


def _room(floors: Floats, others: Floats, mix: Floats, place: _Place) -> Floats:
    """[steps]: the work that replicas `floors` [metrics, steps] did beside the `others`; none where no floor is known.

    A request is done when both its tokens in and out are: the pool, or the term, with less room for the `mix` decides.
    """
    if place.adds and len(set(place.pools)) == 1:
        room = floors[0] - others.sum(axis=0)
    else:
        room = np.divide(floors - others, mix, out=np.full_like(floors, np.inf), where=mix > 0).min(axis=0)
    done: Floats = np.nan_to_num(np.maximum(room, 0.0))
    return done


def _past(
    config: Config, figures: Figures, grid: Grid, history: pl.DataFrame, in_force: pl.DataFrame | None, *, steps: int
) -> _Past:
    position = {name: at for at, name in enumerate(figures.classes)}
    rates = np.full((len(position), len(METRICS), steps), np.nan)
    rows = _before(history, "step_start", grid, steps).filter(pl.col("workload_class").is_in(list(position)))
    seconds = pl.col("observed_fraction") * grid.step.total_seconds()
    for name, at, *observed in rows.select(
        "workload_class", "at", *(pl.col(metric.value) / seconds for metric in METRICS)
    ).iter_rows():
        rates[position[name], :, at] = observed
    floors = {pool: np.full(steps, np.nan) for pool in config.pools}
    if in_force is not None:
        for pool, at, floor in (
            _before(in_force, "window_start", grid, steps).select("pool", "at", "min_replicas").rows()
        ):
            if pool in floors:
                floors[pool][at] = floor
    return _Past(rates, floors)


def _before(frame: pl.DataFrame, time: str, grid: Grid, steps: int) -> pl.DataFrame:
    """The rows of the `steps` before the grid, with their position among these as `at`."""
    index = pl.col(time).dt.timestamp("us") // (grid.step // timedelta(microseconds=1))
    return frame.with_columns(at=index - grid.first_index + steps).filter(pl.col("at").is_between(0, steps - 1))


def _runs(known: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and end of each run of known steps."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _worst_before(rung: npt.NDArray[np.int8], wait: int) -> npt.NDArray[np.int8]:
    """[metrics, steps]: the worst among each step and the `wait` before it."""
    padded = np.pad(rung, ((0, 0), (wait, 0)))
    worst: npt.NDArray[np.int8] = np.lib.stride_tricks.sliding_window_view(padded, wait + 1, axis=1).max(axis=2)
    return worst
