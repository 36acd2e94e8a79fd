"""From the figures of a reason back to the floor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from floorcast.errors import FloorcastError
from floorcast.pool import Pool
from floorcast.types import RULES, Reason, Rule
from scaling.buffers import apply_buffers, buffers_of
from scaling.capacity import required_replicas
from scaling.demand import pool_demand
from scaling.ladder import fallback_replicas
from scaling.reasons import clamped_by


def recompute(reason: Reason, pool: Pool) -> int:
    """The floor that follows from the reason's demand and the pool's capacity, margins and bounds.

    Every number in between is derived anew and compared. What past publications contribute (already published,
    dwell, step-down) and what the calendar does (scheduled minimum, ceiling) is not derivable from one window: it is
    taken as given, if it moves the number the way it may. So is what a quota leaves, which depends on other pools, if
    the quota has no room for another replica. Raises FloorcastError at the first number that disagrees.
    """
    _same("quantile", reason.quantile, pool.margin.quantile)
    figures = reason.classes.values()
    for name, demand in reason.classes.items():
        if demand.prompt_in_per_s is not None:
            computed = demand.prompt_in_per_s * (1 - demand.cached_share)
            _same(f"tokens in per s of {name}, without cached ones", demand.tokens_in_per_s, computed)
    classes = np.array([[c.tokens_in_per_s, c.tokens_out_per_s] for c in figures]).reshape(-1, 2, 1)
    medians = np.array([[c.median_in_per_s, c.median_out_per_s] for c in figures]).reshape(-1, 2, 1)
    share, peak = np.array([[reason.share_in], [reason.share_out]]), np.array([[reason.peak_in], [reason.peak_out]])
    tokens_in, tokens_out = pool_demand(classes, medians, share, peak)[:, 0].tolist()
    _same("tokens in per s, of all classes", reason.tokens_in_per_s, tokens_in)
    _same("tokens out per s, of all classes", reason.tokens_out_per_s, tokens_out)
    replicas = _fallback(reason, pool) if reason.binding == "fallback_replicas" else _buffered(reason, pool)
    return _adjusted(replicas, reason, pool)


def _buffered(reason: Reason, pool: Pool) -> int:
    rates = {"tokens_in_per_s": reason.tokens_in_per_s, "tokens_out_per_s": reason.tokens_out_per_s}
    required, binding = required_replicas(**rates, capacity=pool.capacity, role=pool.role)
    if reason.binding != str(binding):
        raise _disagreement("binding term", reason.binding, str(binding))
    counted = {"tokens_in": ("tokens_in_per_s",), "tokens_out": ("tokens_out_per_s",), "sum": tuple(rates)}
    _same("binding demand", reason.demand_tokens_per_s, sum(rates[name] for name in counted[reason.binding]))
    _same("required replicas", reason.required_replicas, float(required))
    buffers = buffers_of(pool.margin)
    _same_names("buffers", [buffer.name for buffer in reason.buffers], [buffer.name for buffer in buffers])
    after = [float(number) for number in apply_buffers(required, buffers)]
    for given, buffer, replicas in zip(reason.buffers, buffers, after, strict=True):
        _same(f"value of {buffer.name}", given.value, buffer.value)
        _same(f"replicas after {buffer.name}", given.replicas, replicas)
    return int(after[-1])


def _fallback(reason: Reason, pool: Pool) -> int:
    replicas = fallback_replicas(pool)
    _same("fallback replicas", reason.required_replicas, replicas)
    _same_names("buffers", [buffer.name for buffer in reason.buffers], [])
    return replicas


def _adjusted(replicas: int, reason: Reason, pool: Pool) -> int:
    """Through the rules in their order, each of which allows a range."""
    given = {move.rule: move for move in reason.adjustments}
    _same_names("adjustments", [move.rule for move in reason.adjustments], [rule for rule in RULES if rule in given])
    wanted = replicas
    for rule in RULES:
        lowest, highest = _allowed(rule, replicas, pool)
        after = replicas
        if rule in given:
            _same(f"replicas before {rule}", given[rule].before, replicas)
            after = given[rule].after
        if not lowest <= after <= highest or (rule in given and after == replicas):
            allowed = f"{lowest}" if lowest == highest else f"{lowest} to {highest}, and not {replicas}"
            raise _disagreement(f"replicas after {rule}", str(after), allowed)
        if rule == "max_replicas":
            wanted = replicas
        replicas = after
    if "quota" in given and not any(0 <= one.gpus - one.used < pool.gpu.per_replica for one in reason.quotas):
        raise _disagreement("cut by a quota", "yes", "every quota has room for another replica")
    _same("shortfall", reason.shortfall_replicas, max(wanted - replicas, 0))
    if reason.clamped != clamped_by(given):
        raise _disagreement("clamped by", str(reason.clamped), str(clamped_by(given)))
    return replicas


def _allowed(rule: Rule, before: int, pool: Pool) -> tuple[int, int]:
    """The least and the most replicas after a rule; one number where the pool's configuration tells it."""
    bounds = pool.bounds
    if rule == "min_replicas":
        return max(before, bounds.min), max(before, bounds.min)
    if rule == "max_replicas":
        return min(before, bounds.max), min(before, bounds.max)
    if rule == "ceiling":
        return 0, before
    if rule == "quota":
        return min(before, bounds.min), before
    return before, max(before, bounds.max)


def _same(what: str, given: float, derived: float) -> None:
    if not math.isclose(given, derived, rel_tol=1e-9, abs_tol=1e-3):
        raise _disagreement(what, f"{given:g}", f"{derived:g}")


def _disagreement(what: str, given: str, derived: str) -> FloorcastError:
    return FloorcastError(
        f"{what}: the reason says {given}, recomputed {derived}",
        where="reason of a floor",
        remedy="explain it with the configuration it was published with, or publish again",
    )


def _same_names(what: str, given: Sequence[str], derived: Sequence[str]) -> None:
    if list(given) != list(derived):
        raise _disagreement(what, _names(given), _names(derived))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
