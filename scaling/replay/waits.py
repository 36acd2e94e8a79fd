"""How long the tokens of one stream waited in one lane, read off its curves of work arrived and work done."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from scaling.capacity import Floats, Ints
from scaling.replay.queue import Queue

_RESOLUTION_S = 0.01
_INSTANT_S = 1e-4
_NOISE = 1e-11
"""Relative, of sums of as many steps as a replay has."""


@dataclass(frozen=True)
class Waits:
    """Tokens of first tries. Arrays are [steps], of the tokens that arrived in each.

    `tokens` = on_time + late + given_up + waiting at the end. `first_s` and `last_s` are the waits of the first and of
    the last token of a step, linear in between; infinite where it was not reached before the end. What was given up had
    waited `patience_s`.
    """

    tokens: Floats
    on_time: Floats
    late: Floats
    given_up: Floats
    waiting: Floats
    first_s: Floats
    last_s: Floats
    patience_s: float


def waits(queue: Queue, lane: int, *, ttft_s: Floats, step_s: float, tokens: Floats) -> Waits:
    """`ttft_s` [steps] is what service itself adds to a wait in the queue, by the step in which it began."""
    stream = queue.stream
    arrived, done = np.ascontiguousarray(queue.arrived[:, lane]), np.ascontiguousarray(queue.done[:, lane])
    edges = np.arange(len(done))
    first = _reached(done, arrived[:-1], side="right")
    last = _reached(done, arrived[1:], side="left")
    patience = stream.timeout_s
    first_s = _waited(first, edges[:-1], step_s, ttft_s, patience)
    last_s = np.maximum(_waited(last, edges[1:], step_s, ttft_s, patience), 0.0)
    came = np.diff(arrived)
    known = came > 0
    each = np.where(known, came, 1.0)
    given_up = tokens * np.where(known, np.diff(_dropped(queue, lane, arrived)) / each, 0.0)
    left = np.clip(arrived[1:] - np.maximum(done[-1], arrived[:-1]), 0.0, None)
    waiting = tokens * np.where(known, left / each, 0.0)
    within = tokens * _share_within(first_s, last_s, stream.max_wait_s)
    on_time = np.clip(np.minimum(within, tokens - given_up - waiting), 0.0, None)
    late = np.clip(tokens - on_time - given_up - waiting, 0.0, None)
    return Waits(tokens, on_time, late, given_up, waiting, first_s, last_s, patience)


def quantiles(parts: list[Waits], levels: tuple[float, ...], *, longest_s: float) -> list[float]:
    """Wait (s) at these shares of the tokens of all parts, rounded up to a hundredth of a second. A step's tokens count
    in halves, each at its middle wait; those given up at their stream's patience, those still waiting at `longest_s`.
    """
    waited: list[Floats] = []
    tokens: list[Floats] = []
    for part in parts:
        served = part.on_time + part.late
        known = served > 0
        first, last = (np.minimum(one[known], longest_s) for one in (part.first_s, part.last_s))
        for place in (0.25, 0.75):
            waited.append(first + (last - first) * place)
            tokens.append(served[known] / 2)
        waited.append(np.array([min(part.patience_s, longest_s), longest_s]))
        tokens.append(np.array([part.given_up.sum(), part.waiting.sum()]))
    places, counts = np.ceil(np.concatenate(waited) / _RESOLUTION_S - 1e-3), np.concatenate(tokens)
    # Whole numbers of 16 bits are sorted by their digits, ten times as fast.
    small = places.max() <= np.iinfo(np.uint16).max
    order = np.argsort(places.astype(np.uint16) if small else places, kind="stable")
    share = np.cumsum(counts[order])
    at = np.searchsorted(share, np.array(levels) * share[-1] * (1 - 1e-12))
    return [float(place) * _RESOLUTION_S for place in places[order][np.minimum(at, len(order) - 1)]]


def _reached(done: Floats, position: Floats, *, side: str) -> Floats:
    """When (in steps) `done` reaches each position, or with `right` passes it; infinite where it does not.

    Curves that have met differ by the noise of their sums.
    """
    if side == "left":
        position = position - _NOISE * np.maximum(np.abs(position), 1.0)
        after = np.searchsorted(done, position, side="left")
    else:
        position = position + _NOISE * np.maximum(np.abs(position), 1.0)
        after = np.searchsorted(done, position, side="right")
    inside = np.minimum(after, len(done) - 1)
    before = np.maximum(inside - 1, 0)
    rise = done[inside] - done[before]
    part = np.where(rise > 0, (position - done[before]) / np.where(rise > 0, rise, 1.0), 0.0)
    return np.where(after < len(done), before + np.clip(part, 0.0, 1.0), inf)


def _waited(when: Floats, since: Ints, step_s: float, ttft_s: Floats, patience: float) -> Floats:
    known = np.isfinite(when)
    queued = np.where(known, np.maximum(when - since, 0.0), inf) * step_s
    begun = np.where(known, np.clip(when, 0, len(ttft_s) - 1), 0).astype(np.int64)
    waited: Floats = np.where(queued < patience, queued + ttft_s[begun], queued)
    return waited


def _dropped(queue: Queue, lane: int, position: Floats) -> Floats:
    """[edges] the work given up of what arrived before each position."""
    edges = [edge for edge, given_up in queue.drops if given_up[lane] > 0]
    if not edges:
        return np.zeros_like(position)
    ends = queue.done[edges, lane]
    amounts = np.array([given_up[lane] for _, given_up in queue.drops if given_up[lane] > 0])
    total = np.cumsum(amounts)
    at = np.stack([ends - amounts, ends], axis=1).ravel()
    level = np.stack([total - amounts, total], axis=1).ravel()
    before: Floats = np.interp(position, at, level, left=0.0)
    return before


def _share_within(first_s: Floats, last_s: Floats, limit_s: float) -> Floats:
    """[steps] share of the tokens between the first and the last whose wait is at most the limit."""
    low, high = np.minimum(first_s, last_s), np.maximum(first_s, last_s)
    limit_s += _INSTANT_S
    known = np.isfinite(high)
    spread = np.where(known, high, 0.0) - np.where(known, low, 0.0)
    share = np.clip((limit_s - low) / np.where(spread > 0, spread, 1.0), 0.0, 1.0)
    # Of a step that the end cuts off, what was served waited like its first.
    return np.where(spread > 0, share, low <= limit_s)
