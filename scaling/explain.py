"""A published floor, in words and recomputed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from floorcast.columns import Metric
from floorcast.errors import FloorcastError
from floorcast.pool import Pool
from floorcast.types import Adjustment, Buffer, ClassDemand, FloorWindow, Reason, Rung
from floorcast.units import format_duration
from scaling.capacity import add_margins, required_replicas
from scaling.demand import pool_demand
from scaling.ladder import MISSING, fallback_replicas

_FALLBACK = Rung.FALLBACK.value
_WORDS = {Metric.TOKENS_IN.value: "tokens in", Metric.TOKENS_OUT.value: "tokens out"}
_SIDES = {Metric.TOKENS_IN.value: ("in",), Metric.TOKENS_OUT.value: ("out",), "sum": ("in", "out")}
_RAISING = ("already_published", "dwell", "step_down")
_RUNGS = {
    Rung.FRESH: "fresh forecast",
    Rung.LAST_FORECAST: "last forecast, its spread widened by its age; never below what was published",
    Rung.PAST_WEEKS: "past weeks' maximum, for want of a forecast; never below what was published",
    Rung.FALLBACK: "a class without any figure: at least fallback_replicas, which is bounds.max unless set; "
    "never below what was published",
}


def recompute(reason: Reason, pool: Pool) -> int:
    """The floor that follows from the reason's demand and the pool's capacity, margins and bounds.

    Every number in between is derived anew and compared. What past publications contribute (dwell, step-down,
    already published) is not derivable from one window: it is taken as given, if it raises the number and stays
    within bounds. Raises FloorcastError at the first number that disagrees.
    """
    _same("quantile", reason.quantile, pool.margin.quantile)
    figures = reason.classes.values()
    classes = np.array([[c.tokens_in_per_s, c.tokens_out_per_s] for c in figures]).reshape(-1, 2, 1)
    medians = np.array([[c.median_in_per_s, c.median_out_per_s] for c in figures]).reshape(-1, 2, 1)
    share, peak = np.array([[reason.share_in], [reason.share_out]]), np.array([[reason.peak_in], [reason.peak_out]])
    tokens_in, tokens_out = pool_demand(classes, medians, share, peak)[:, 0].tolist()
    _same("tokens in per s, of all classes", reason.tokens_in_per_s, tokens_in)
    _same("tokens out per s, of all classes", reason.tokens_out_per_s, tokens_out)
    replicas, buffers = _fallback(reason, pool) if reason.binding == _FALLBACK else _margins(reason, pool)
    if [buffer.name for buffer in reason.buffers] != [buffer.name for buffer in buffers]:
        raise _disagreement("margins", _names(reason.buffers), _names(buffers))
    for given, derived in zip(reason.buffers, buffers, strict=True):
        _same(f"value of {given.name}", given.value, derived.value)
        _same(f"replicas after {given.name}", given.replicas, derived.replicas)
    return _adjusted(replicas, reason, pool)


def _margins(reason: Reason, pool: Pool) -> tuple[int, list[Buffer]]:
    rates = {"tokens_in_per_s": reason.tokens_in_per_s, "tokens_out_per_s": reason.tokens_out_per_s}
    required, binding = required_replicas(**rates, capacity=pool.capacity, role=pool.role)
    if reason.binding != str(binding):
        raise _disagreement("binding term", reason.binding, str(binding))
    counted = {"tokens_in": ("tokens_in_per_s",), "tokens_out": ("tokens_out_per_s",), "sum": tuple(rates)}
    _same("binding demand", reason.demand_tokens_per_s, sum(rates[name] for name in counted[reason.binding]))
    _same("required replicas", reason.required_replicas, float(required))
    margin, after = pool.margin, add_margins(required, pool.margin)
    buffers = [Buffer(name="round_up", value=1, replicas=float(after.rounded))]
    if margin.minimum:
        buffers.insert(0, Buffer(name="minimum_margin", value=margin.minimum, replicas=float(after.minimum)))
    if margin.warm:
        buffers.append(Buffer(name="warm", value=margin.warm, replicas=float(after.warm)))
    return int(after.warm), buffers


def _fallback(reason: Reason, pool: Pool) -> tuple[int, list[Buffer]]:
    replicas = fallback_replicas(pool)
    _same("fallback replicas", reason.required_replicas, replicas)
    return replicas, []


def _adjusted(replicas: int, reason: Reason, pool: Pool) -> int:
    bounds = pool.bounds
    bounded = min(max(replicas, bounds.min), bounds.max)
    clamped = "min_replicas" if bounded > replicas else "max_replicas" if bounded < replicas else None
    if reason.clamped != clamped:
        raise _disagreement("clamped by", str(reason.clamped), str(clamped))
    _same("shortfall", reason.shortfall_replicas, max(replicas - bounds.max, 0))
    allowed = (clamped, *_RAISING) if clamped else _RAISING
    rules = [adjustment.rule for adjustment in reason.adjustments]
    if rules != [rule for rule in allowed if rule in rules] or (clamped and clamped not in rules):
        raise _disagreement("adjustments", ", ".join(rules), f"some of {', '.join(allowed)}, once each, in this order")
    for adjustment in reason.adjustments:
        _same(f"replicas before {adjustment.rule}", adjustment.before, replicas)
        if adjustment.rule == clamped:
            _same(f"replicas after {adjustment.rule}", adjustment.after, bounded)
        elif not adjustment.before < adjustment.after <= bounds.max:
            limits = f"more than {adjustment.before} and at most {bounds.max}"
            raise _disagreement(f"replicas after {adjustment.rule}", str(adjustment.after), limits)
        replicas = adjustment.after
    return replicas


def _same(what: str, given: float, derived: float) -> None:
    if not math.isclose(given, derived, rel_tol=1e-9, abs_tol=1e-3):
        raise _disagreement(what, f"{given:g}", f"{derived:g}")


def _disagreement(what: str, given: str, derived: str) -> FloorcastError:
    return FloorcastError(
        f"{what}: the reason says {given}, recomputed {derived}",
        where="reason of a floor",
        remedy="explain it with the configuration it was published with, or publish again",
    )


def _names(buffers: tuple[Buffer, ...] | list[Buffer]) -> str:
    return ", ".join(buffer.name for buffer in buffers) or "none"


def explain(
    window: FloorWindow,
    *,
    pool_name: str,
    pool: Pool,
    zone: str = "UTC",
    version: int | None = None,
    issued_at: datetime | None = None,
    cutoff: datetime | None = None,
    rung: Rung | None = None,
) -> str:
    """The floor of a window in words: the number first, then every step that made it.

    `pool` must be as it was when the floor was published, which `recompute` proves. What is not given is not
    printed: the schedule's `version` and `issued_at`, the forecasts' `cutoff`, the window's `rung`.
    """
    reason = window.reason
    local = "" if zone == "UTC" else f" ({window.start.astimezone(ZoneInfo(zone)):%H:%M} {zone})"
    title = f"{pool_name} at {window.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC{local}: floor {window.min_replicas}"
    lines = _fallback_lines(window, pool) if reason.binding == _FALLBACK else _demand_lines(window, pool)
    lines.append(("lead", _lead(reason, pool)))
    lines.append(("bounds", _bounds(reason, pool, window.min_replicas)))
    lines += [_RULE_LINES[move.rule](move, pool) for move in reason.adjustments if move.rule in _RULE_LINES]
    lines.append(("forecast", _forecast(window, version=version, issued_at=issued_at, cutoff=cutoff)))
    if rung is not None:
        lines.append(("rung", _RUNGS[rung]))
    return "\n".join([title, *(f"  {label:<10}  {text}" for label, text in lines)])


def _fallback_lines(window: FloorWindow, pool: Pool) -> list[tuple[str, str]]:
    unknown = [name for name, demand in window.reason.classes.items() if MISSING in (demand.model_in, demand.model_out)]
    replicas = f"{window.reason.required_replicas:g}"
    unset = f"bounds.max {replicas}, since fallback_replicas is not set"
    given = unset if pool.fallback_replicas is None else f"fallback_replicas {replicas}"
    return [
        ("needed by", f"{_clock(window, window.reason.needed_by)}, when demand of {', '.join(unknown)} is not known"),
        ("fallback", f"{given}, without margins"),
    ]


def _demand_lines(window: FloorWindow, pool: Pool) -> list[tuple[str, str]]:
    reason = window.reason
    if reason.binding == "sum":
        reached = f"tokens in reach {_rate(reason.tokens_in_per_s)} and tokens out {_rate(reason.tokens_out_per_s)}"
    else:
        reached = f"{_WORDS[reason.binding]} reach {_rate(reason.demand_tokens_per_s)}"
    spread = f"quantile {reason.quantile:g}; median {_rate(reason.median_tokens_per_s)}"
    return [
        ("needed by", f"{_clock(window, reason.needed_by)}, when {reached} ({spread})"),
        ("classes", _classes(reason)),
        *_together(reason),
        ("capacity", _capacity(reason, pool)),
        ("margins", _margins_text(reason)),
    ]


def _classes(reason: Reason) -> str:
    """Each class's figures of the metrics that decided; medians where the pool's demand is made of them, too."""
    sides = _SIDES[reason.binding]
    apart = min(_of(reason, "share")) < 1

    def figure(demand: ClassDemand, side: str) -> str:
        word = f" {side}" if len(sides) > 1 else ""
        if getattr(demand, f"model_{side}") == MISSING:
            return f"{MISSING}{word}"
        median = f" (median {_number(getattr(demand, f'median_{side}_per_s'))})" if apart else ""
        return f"{_rate(getattr(demand, f'tokens_{side}_per_s'))}{word}{median}"

    shares = ((name, " + ".join(figure(demand, side) for side in sides)) for name, demand in reason.classes.items())
    return ", ".join(f"{name} {share}" for name, share in shares)


def _together(reason: Reason) -> list[tuple[str, str]]:
    """The pool's demand worked out from the classes' figures, where that takes a step."""
    several, peaks = len(reason.classes) > 1, _of(reason, "peak")
    if not several and max(peaks) == 1:
        return []
    sums = ";  ".join(_sum(reason, side) for side in _SIDES[reason.binding])
    shares = " and ".join(f"{100 * share:.0f} %" for share in _of(reason, "share"))
    apart = f"medians + {shares} of their spread, as they peak apart"
    how = [apart if min(_of(reason, "share")) < 1 else "added as if they peak together"]
    minute = f"times {' and '.join(f'{peak:.2f}' for peak in peaks)} for the busiest minute"
    return [("together", f"{sums}: {', '.join(how * several + [minute] * (max(peaks) > 1))}")]


def _sum(reason: Reason, side: str) -> str:
    """As `(61,943 + 0.5903 x (72,039 - 61,943)) x 1.1284 = 76,615/s`."""
    quantiles = [getattr(demand, f"tokens_{side}_per_s") for demand in reason.classes.values()]
    quantile, median = (
        sum(quantiles),
        sum(getattr(demand, f"median_{side}_per_s") for demand in reason.classes.values()),
    )
    share, peak = getattr(reason, f"share_{side}"), getattr(reason, f"peak_{side}")
    text = " + ".join(_number(each) for each in quantiles)
    if share < 1:
        text = f"{_number(median)} + {share:.4f} x ({_number(quantile)} - {_number(median)})"
    if peak > 1:
        text = f"({text}) x {peak:.4f}" if " " in text else f"{text} x {peak:.4f}"
    return f"{text} = {_rate(getattr(reason, f'tokens_{side}_per_s'))}"


def _of(reason: Reason, figure: str) -> list[float]:
    """The `share` or `peak` of each metric that decided."""
    return [getattr(reason, f"{figure}_{side}") for side in _SIDES[reason.binding]]


def _capacity(reason: Reason, pool: Pool) -> str:
    capacity, utilization = pool.capacity, pool.capacity.target_utilization
    rates = {Metric.TOKENS_IN.value: reason.tokens_in_per_s, Metric.TOKENS_OUT.value: reason.tokens_out_per_s}
    sustained = {
        Metric.TOKENS_IN.value: capacity.prefill_tokens_per_s,
        Metric.TOKENS_OUT.value: capacity.decode_tokens_per_s,
    }
    if reason.binding == "sum":
        loads = " + ".join(f"{_number(rates[name])} / {_number(sustained[name])}" for name in rates)
        return f"({loads}) / {utilization:g} = {reason.required_replicas:.2f}"
    replica = sustained[reason.binding]
    usable = replica * utilization
    text = (
        f"{_rate(replica)} per replica x {utilization:g} = {_rate(usable)};  "
        f"{_number(reason.demand_tokens_per_s)} / {_number(usable)} = {reason.required_replicas:.2f}"
    )
    if pool.role == "unified":
        (other,) = rates.keys() - {reason.binding}
        text += f";  {_WORDS[other]} would need {rates[other] / (sustained[other] * utilization):.2f}"
    return text


def _margins_text(reason: Reason) -> str:
    buffers = {buffer.name: buffer for buffer in reason.buffers}
    text = f"{reason.required_replicas:.2f}"
    if minimum := buffers.get("minimum_margin"):
        text = f"minimum {minimum.value * 100:g} %: {minimum.replicas:.2f}"
    text += f" -> {_replicas(buffers['round_up'].replicas)}"
    if warm := buffers.get("warm"):
        text += f";  warm {warm.value:g}: {warm.replicas:g}"
    return text


def _lead(reason: Reason, pool: Pool) -> str:
    startup, lead = pool.startup, timedelta(seconds=reason.lead_s)
    publication = format_duration(lead - startup.p90 - startup.apply_delay)
    return (
        f"startup p90 {format_duration(startup.p90)} + publication {publication}"
        f" + apply {format_duration(startup.apply_delay)} = {format_duration(lead)}"
    )


def _bounds(reason: Reason, pool: Pool, floor: int) -> str:
    text = f"{pool.bounds.min} to {pool.bounds.max}"
    clamps = [adjusted for adjusted in reason.adjustments if adjusted.rule == reason.clamped]
    if not clamps:
        wanted = reason.adjustments[0].before if reason.adjustments else floor
        at = " and ".join(name for name in ("min", "max") if wanted == getattr(pool.bounds, name))
        return f"{text}, {wanted} is bounds.{at}" if at else f"{text}, not binding"
    text += f": {clamps[0].before} becomes {clamps[0].after}"
    return f"{text}, {_replicas(reason.shortfall_replicas)} short" if reason.shortfall_replicas else text


def _published_line(adjusted: Adjustment, _pool: Pool) -> tuple[str, str]:
    return "published", f"{adjusted.before} becomes {adjusted.after}, as published before for this time"


def _dwell_line(adjusted: Adjustment, pool: Pool) -> tuple[str, str]:
    return "dwell", f"{adjusted.before} becomes {adjusted.after}, held for {format_duration(pool.shape.dwell)}"


def _step_down_line(adjusted: Adjustment, pool: Pool) -> tuple[str, str]:
    pace = f"down by at most {pool.shape.step_down} in {format_duration(pool.shape.every)}"
    return "step down", f"{adjusted.before} becomes {adjusted.after}, {pace}"


_RULE_LINES = {"already_published": _published_line, "dwell": _dwell_line, "step_down": _step_down_line}


def _forecast(window: FloorWindow, *, version: int | None, issued_at: datetime | None, cutoff: datetime | None) -> str:
    issued = [f"version {version}"] if version is not None else []
    issued += [f"issued {_clock(window, issued_at)}"] if issued_at else []
    issued += [f"from data up to {_clock(window, cutoff)}"] if cutoff else []
    models = [
        f"{name}: {demand.model_in}"
        + ("" if demand.model_in == demand.model_out else f" (in), {demand.model_out} (out)")
        for name, demand in window.reason.classes.items()
    ]
    return ";  ".join([" ".join(issued), *models] if issued else models)


def _clock(window: FloorWindow, moment: datetime) -> str:
    """The time of day, with the date where it is not the window's."""
    there, here = moment.astimezone(UTC), window.start.astimezone(UTC)
    return f"{there:%H:%M} UTC" if there.date() == here.date() else f"{there:%Y-%m-%d %H:%M} UTC"


def _replicas(count: float) -> str:
    return f"{count:g} replica{'' if count == 1 else 's'}"


def _rate(tokens_per_s: float) -> str:
    return f"{_number(tokens_per_s)}/s"


def _number(value: float) -> str:
    """Whole from 100 up, three digits below.

    >>> _number(21300.4), _number(3.14159)
    ('21,300', '3.14')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
