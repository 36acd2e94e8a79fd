"""From the figures of a reason back to the floor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from floorcast.errors import FloorcastError
from floorcast.pool import PoolSettings
from floorcast.types import RULES, Reason, Rule
from scaling.buffers import ToZero, apply_buffers, buffers_of
from scaling.capacity import Floats, required_replicas
from scaling.demand import pool_demand
from scaling.ladder import fallback_replicas
from scaling.moves import lower_bound
from scaling.pool_demand import DECISIVE, total_demand
from scaling.reasons import clamped_by
from scaling.shape import fall, stay, whole_multiples


def recompute(reason: Reason, pool: PoolSettings) -> int:
    """The floor that follows from the reason's demand and what the pool was planned with.

    Every number in between is derived anew and compared, hysteresis and step-down from what the reason says was
    published for the window and of the window before. Whether the window is one in which a floor may fall, and whether
    its rung keeps what was published, the reason does not say: both are allowed. What other windows hold (dwell), what
    the calendar does (scheduled minimum, ceiling), whether the gate is closed and that demand stays low after the
    deciding step (scale to zero) is not derivable from one window: it is taken as given, if it moves the number the way
    it may. So is what a quota
    leaves, which depends on other pools, if the quota has no room for another replica. Raises FloorcastError at the
    first number that disagrees.
    """
    _same("quantile", reason.quantile, pool.margin.quantile)
    tokens_in, tokens_out = _demand(reason, pool)
    _same("tokens in per s, of all classes", reason.tokens_in_per_s, tokens_in)
    _same("tokens out per s, of all classes", reason.tokens_out_per_s, tokens_out)
    idle = [buffer.name for buffer in reason.buffers] == [ToZero.name]
    if reason.binding == "fallback_replicas":
        return _moved(_fallback(reason, pool), reason, pool, idle=False)
    required = _required(reason, pool)
    buffers = (_to_zero(reason, pool),) if idle else buffers_of(pool.margin)
    _same_names("buffers", [buffer.name for buffer in reason.buffers], [buffer.name for buffer in buffers])
    after = [float(number) for number in apply_buffers(required, buffers)]
    for given, buffer, replicas in zip(reason.buffers, buffers, after, strict=True):
        _same(f"value of {buffer.name}", given.value, buffer.value)
        _same(f"replicas after {buffer.name}", given.replicas, replicas)
    return _moved(int(after[-1]), reason, pool, idle=idle)


def _demand(reason: Reason, pool: PoolSettings) -> list[float]:
    """Tokens in and out per second: of the classes together, and of what is taken over."""
    figures = reason.classes.values()
    for name, demand in reason.classes.items():
        if demand.prompt_in_per_s is not None:
            computed = demand.prompt_in_per_s * (1 - demand.cached_share)
            _same(f"tokens in per s of {name}, without cached ones", demand.tokens_in_per_s, computed)
    classes = np.array([[c.tokens_in_per_s, c.tokens_out_per_s] for c in figures]).reshape(-1, 2, 1)
    medians = np.array([[c.median_in_per_s, c.median_out_per_s] for c in figures]).reshape(-1, 2, 1)
    share, peak = np.array([[reason.share_in], [reason.share_out]]), np.array([[reason.peak_in], [reason.peak_out]])
    _same_names("pools taken over", sorted(reason.takes_over), sorted(pool.margin.takes_over))
    taken = {}
    for name, other in reason.takes_over.items():
        _same(f"share of {name}", other.share, pool.margin.takes_over[name])
        taken[name] = (other.share, np.array([[other.tokens_in_per_s], [other.tokens_out_per_s]]))
    total: list[float] = total_demand(pool_demand(classes, medians, share, peak), taken)[:, 0].tolist()
    return total


def _required(reason: Reason, pool: PoolSettings) -> Floats:
    rates = {"tokens_in_per_s": reason.tokens_in_per_s, "tokens_out_per_s": reason.tokens_out_per_s}
    required, binding = required_replicas(**rates, capacity=pool.capacity, role=pool.role)
    if reason.binding != str(binding):
        raise _disagreement("binding term", reason.binding, str(binding))
    counted = {"tokens_in": ("tokens_in_per_s",), "tokens_out": ("tokens_out_per_s",), "sum": tuple(rates)}
    _same("binding demand", reason.demand_tokens_per_s, sum(rates[name] for name in counted[reason.binding]))
    _same("required replicas", reason.required_replicas, float(required))
    return required


def _to_zero(reason: Reason, pool: PoolSettings) -> ToZero:
    low = math.nan if pool.scale_to_zero is None else pool.scale_to_zero.below_tokens_per_s
    total = sum([reason.tokens_in_per_s, reason.tokens_out_per_s][DECISIVE[pool.role]])
    if not total < low:
        raise _disagreement("scale to zero", f"demand of {total:g}/s stays under the threshold", f"{low:g}/s")
    return ToZero(low)


def _fallback(reason: Reason, pool: PoolSettings) -> int:
    replicas = fallback_replicas(pool)
    _same("fallback replicas", reason.required_replicas, replicas)
    _same_names("buffers", [buffer.name for buffer in reason.buffers], [])
    return replicas


def _moved(replicas: int, reason: Reason, pool: PoolSettings, *, idle: bool) -> int:
    """Through the rules in their order, each of which allows some numbers."""
    given = {move.rule: move for move in reason.adjustments}
    _same_names("adjustments", [move.rule for move in reason.adjustments], [rule for rule in RULES if rule in given])
    wanted = replicas
    every = _allowed(reason, pool, idle=idle)
    for rule in RULES:
        allowed = every[rule](replicas)
        after = replicas
        if rule in given:
            _same(f"replicas before {rule}", given[rule].before, replicas)
            after = given[rule].after
        if after not in allowed or (rule in given and after == replicas):
            lowest, highest = min(allowed), max(allowed)
            text = f"{lowest} {'to' if len(allowed) > 2 else 'or'} {highest}, and not {replicas}"
            raise _disagreement(f"replicas after {rule}", str(after), f"{lowest}" if lowest == highest else text)
        if rule == "max_replicas":
            wanted = replicas
        replicas = after
    if "quota" in given and not any(0 <= one.gpus - one.used < pool.gpu.per_replica for one in reason.quotas):
        raise _disagreement("cut by a quota", "yes", "every quota has room for another replica")
    _same("shortfall", reason.shortfall_replicas, max(wanted - replicas, 0))
    if reason.clamped != clamped_by(given):
        raise _disagreement("clamped by", str(reason.clamped), str(clamped_by(given)))
    return replicas


def _allowed(reason: Reason, pool: PoolSettings, *, idle: bool) -> dict[Rule, Callable[[int], Collection[int]]]:
    """By rule, from the replicas before it, those that there may be after it: one number where the reason and the
    pool's settings tell it."""
    shape, highest, least = pool.shape, pool.bounds.highest, lower_bound(pool, idle=idle)
    published, previous = (
        min(whole_multiples(replicas, shape.multiple_of), highest)
        for replicas in (reason.published_replicas, reason.previous_replicas)
    )
    fallen = fall(previous, step_down=shape.step_down, multiple_of=shape.multiple_of)

    def stayed(before: int) -> int:
        return int(stay(np.array([before]), published=np.array([published]), hysteresis=shape.hysteresis)[0])

    return {
        "gate": lambda before: (before, 0),
        "scheduled_minimum": lambda before: range(before, max(before, highest) + 1),
        "min_replicas": lambda before: (max(before, least),),
        "multiple_of": lambda before: (whole_multiples(before, shape.multiple_of),),
        "max_replicas": lambda before: (min(before, highest),),
        "dwell": lambda before: range(before, highest + 1 if shape.dwell else before + 1),
        "already_published": lambda before: (before, max(before, published)),
        "hysteresis": lambda before: (stayed(before),),
        "step_down": lambda before: (max(before, fallen), max(before, previous)),
        "ceiling": lambda before: range(before + 1),
        "quota": lambda before: range(min(before, pool.bounds.min), before + 1),
    }


def _same(what: str, given: float, derived: float) -> None:
    if not math.isclose(given, derived, rel_tol=1e-9, abs_tol=1e-3):
        raise _disagreement(what, f"{given:g}", f"{derived:g}")


def _disagreement(what: str, given: str, derived: str) -> FloorcastError:
    return FloorcastError(
        f"{what}: the reason says {given}, recomputed {derived}",
        where="reason of a floor",
        remedy="explain it with what it was planned with, or plan and publish again",
    )


def _same_names(what: str, given: Sequence[str], derived: Sequence[str]) -> None:
    if list(given) != list(derived):
        raise _disagreement(what, _names(given), _names(derived))


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
