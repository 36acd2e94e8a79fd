"""From a pool's past to its settings, what to expect of them, and its gate."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np

from floorcast.errors import DataError
from floorcast.tuning import Tuning
from scaling.capacity import Floats
from scaling.replay.clairvoyant import clairvoyant
from scaling.replay.traffic import Stream, Traffic
from scaling.tuning.candidates import settings_of
from scaling.tuning.gate import draw_days, expect, not_told, verdict
from scaling.tuning.outcomes import DAY_S, Outcome, Past, outcome_of, outcomes
from scaling.tuning.search import search


def tune(past: Past, *, name: str, now: datetime, rng: np.random.Generator) -> Tuning:
    """Settings for the pool with floors and without, judged on the second half of the past's days, and the gate.

    `now` is the past's end; `rng` draws the days of the intervals. Raises DataError where there are under two days.
    """
    days, promise, pool = past.days, past.pool.slo.on_time, past.pool
    judged = days // 2
    if not judged:
        raise DataError(f"{days} whole days are too few to tune on", where=f"pool {name}", remedy="ingest more history")
    found = search(partial(outcomes, past), pool, days=days, judged=judged, promise=promise)
    current = settings_of(pool, floors=True)
    drawn = draw_days(judged, rng)
    best = _clairvoyant(past, judged)
    gate = verdict(found.floors.outcome, found.overlay_alone.outcome, drawn, promise=promise)
    if gate.gate == "closed" and (why := not_told(pool)):
        gate = gate._replace(gate="untested", why=f"{why}; {gate.why}")
    return Tuning(
        pool=name,
        as_of=now,
        days=judged,
        promise=promise,
        gate=gate.gate,
        why=gate.why,
        floors=expect(found.floors.settings, found.floors.outcome, best, drawn),
        overlay_alone=expect(found.overlay_alone.settings, found.overlay_alone.outcome, best, drawn),
        now=expect(current, _last_days(found.outcomes[current], judged), best, drawn),
    )


def _clairvoyant(past: Past, judged: int) -> Floats | None:
    """[judged] GPU-hours of the cheapest replicas that keep the promise over those days; None where none do."""
    steps = round(judged * DAY_S / past.traffic.step_s)
    first = past.traffic.steps - steps
    traffic = Traffic(
        past.traffic.start + timedelta(seconds=first * past.traffic.step_s),
        past.traffic.step_s,
        tuple(_from(stream, first) for stream in past.traffic.streams),
    )
    try:
        result = clairvoyant(traffic, pool=past.pool, conditions=past.conditions, on_time=past.pool.slo.on_time)
    except DataError:
        return None
    return outcome_of(result, 0).gpu_hours


def _from(stream: Stream, first: int) -> Stream:
    return replace(
        stream,
        tokens_in=stream.tokens_in[first:],
        tokens_out=stream.tokens_out[first:],
        requests=stream.requests[first:],
    )


def _last_days(outcome: Outcome, days: int) -> Outcome:
    return Outcome(outcome.gpu_hours[-days:], outcome.on_time[-days:], outcome.settled[-days:])
