"""A published floor in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from floorcast.columns import Metric
from floorcast.pool import PoolSettings
from floorcast.types import RULES, Adjustment, ClassDemand, FloorWindow, Proof, Reason, Rule, Rung
from floorcast.units import format_duration
from scaling.buffers import RoundUp, ToZero, buffers_of
from scaling.ladder import MISSING

_SAME_SERVICE = 0.0005
"""Shares on time that differ by less are told as one."""

_FALLBACK = Rung.FALLBACK.value
_WORDS = {Metric.TOKENS_IN.value: "tokens in", Metric.TOKENS_OUT.value: "tokens out"}
_SIDES = {Metric.TOKENS_IN.value: ("in",), Metric.TOKENS_OUT.value: ("out",), "sum": ("in", "out")}
_RUNGS = {
    Rung.FRESH: "fresh forecast",
    Rung.LAST_FORECAST: "last forecast, its spread widened by its age; never below what was published",
    Rung.PAST_WEEKS: "past weeks' maximum, for want of a forecast; never below what was published",
    Rung.FALLBACK: "a class without any figure: its pool has at least fallback_replicas, or bounds.max where unset; "
    "never below what was published",
}


def explain(
    window: FloorWindow,
    *,
    pool_name: str,
    pool: PoolSettings,
    zone: str = "UTC",
    version: int | None = None,
    issued_at: datetime | None = None,
    cutoff: datetime | None = None,
    rung: Rung | None = None,
    proof: Proof | None = None,
) -> str:
    """The floor of a window in words: the number first, then every step that made it.

    `pool` must be as it was when the floor was published, which `scaling.recompute` proves. What is not given is not
    printed: the schedule's `version` and `issued_at`, the forecasts' `cutoff`, the window's `rung`, the pool's `proof`.
    """
    reason = window.reason
    local = "" if zone == "UTC" else f" ({window.start.astimezone(ZoneInfo(zone)):%H:%M} {zone})"
    title = f"{pool_name} at {window.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC{local}: floor {window.min_replicas}"
    lines = _fallback_lines(window, pool) if reason.binding == _FALLBACK else _demand_lines(window, pool)
    if reason.partners:
        lines.append(("partners", f"{', '.join(reason.partners)}: planned together, for one lead and rung"))
    lines.append(("lead", _lead(reason, pool)))
    lines += _rule_lines(window, pool)
    if reason.admission:
        lines.append(("admission", _admission(reason)))
    lines.append(("forecast", _forecast(window, version=version, issued_at=issued_at, cutoff=cutoff)))
    if rung is not None:
        lines.append(("rung", _RUNGS[rung]))
    if proof is not None:
        lines += _proof(proof)
    return "\n".join([title, *(f"  {label:<10}  {text}" for label, text in lines)])


def _fallback_lines(window: FloorWindow, pool: PoolSettings) -> list[tuple[str, str]]:
    unknown = [name for name, demand in window.reason.classes.items() if MISSING in (demand.model_in, demand.model_out)]
    replicas = f"{window.reason.required_replicas:g}"
    unset = f"bounds.max {replicas}, since fallback_replicas is not set"
    given = unset if pool.fallback_replicas is None else f"fallback_replicas {replicas}"
    return [
        ("needed by", f"{_clock(window, window.reason.needed_by)}, when demand of {', '.join(unknown)} is not known"),
        ("fallback", f"{given}, without margins"),
    ]


def _demand_lines(window: FloorWindow, pool: PoolSettings) -> list[tuple[str, str]]:
    reason = window.reason
    if reason.binding == "sum":
        reached = f"tokens in reach {_rate(reason.tokens_in_per_s)} and tokens out {_rate(reason.tokens_out_per_s)}"
    else:
        reached = f"{_WORDS[reason.binding]} reach {_rate(reason.demand_tokens_per_s)}"
    spread = f"quantile {reason.quantile:g}; median {_rate(reason.median_tokens_per_s)}"
    return [
        ("needed by", f"{_clock(window, reason.needed_by)}, when {reached} ({spread})"),
        ("classes", _classes(reason)),
        *_cached(reason),
        *_deadlines(window),
        *_together(reason),
        ("capacity", _capacity(reason, pool)),
        ("margins", _margins_text(reason, pool)),
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

    def placed(demand: ClassDemand) -> str:
        return f" ({100 * demand.share:.0f} % of it is placed here)" if demand.share < 1 else ""

    figures = (
        f"{name} {' + '.join(figure(demand, side) for side in sides)}{placed(demand)}"
        for name, demand in reason.classes.items()
        if demand.share
    )
    return ", ".join(figures) or "none is placed here"


def _deadlines(window: FloorWindow) -> list[tuple[str, str]]:
    """As `batch by deadline 15m: 3,200/s of 9,800/s arriving now, all of it by 09:20 UTC`."""
    reason = window.reason
    lines = []
    for name, demand in reason.classes.items():
        if (wait := demand.deadline) is None:
            continue
        parts = []
        for side in _SIDES[reason.binding]:
            done, arriving = getattr(demand, f"tokens_{side}_per_s"), getattr(wait, f"arriving_{side}_per_s")
            word = f" {side}" if reason.binding == "sum" else ""
            parts.append(
                f"{_rate(done)} of {_rate(arriving)}{word} arriving now"
                if done <= arriving
                else f"{_rate(done)}{word}: {_rate(arriving)} arriving now and what waited before"
            )
        rest = f"all of it by {_clock(window, wait.done_by)}"
        lines.append(("deadline", f"{name} by deadline {format_duration(wait.wait_s)}: {', '.join([*parts, rest])}"))
    return lines


def _cached(reason: Reason) -> list[tuple[str, str]]:
    """What the prefix cache spares, where tokens in decided."""
    if "in" not in _SIDES[reason.binding]:
        return []
    spared = [
        f"{name} {_number(demand.prompt_in_per_s)} prompt tokens/s x (1 - {demand.cached_share:g}) = "
        f"{_rate(demand.tokens_in_per_s)}"
        for name, demand in reason.classes.items()
        if demand.prompt_in_per_s
    ]
    return [("cached", f"{';  '.join(spared)}, the rest is in the prefix cache")] if spared else []


def _together(reason: Reason) -> list[tuple[str, str]]:
    """The pool's demand worked out from the classes' figures, where that takes a step."""
    lines, several, peaks = [], len(reason.classes) > 1, _of(reason, "peak")
    if several or max(peaks) > 1:
        sums = ";  ".join(_sum(reason, side) for side in _SIDES[reason.binding])
        shares = " and ".join(f"{100 * share:.0f} %" for share in _of(reason, "share"))
        apart = f"medians + {shares} of their spread, as they peak apart"
        how = [apart if min(_of(reason, "share")) < 1 else "added as if they peak together"]
        minute = f"times {' and '.join(f'{peak:.2f}' for peak in peaks)} for the busiest minute"
        lines.append(("together", f"{sums}: {', '.join(how * several + [minute] * (max(peaks) > 1))}"))
    if reason.takes_over:
        sums = ";  ".join(_taken(reason, side) for side in _SIDES[reason.binding])
        lines.append(("takes over", f"{sums}: in case the region of {' or '.join(reason.takes_over)} is lost"))
    return lines


def _taken(reason: Reason, side: str) -> str:
    """As `9,000 + 50 % of 4,000 = 11,000/s`."""
    name = f"tokens_{side}_per_s"
    others = [f"{100 * other.share:g} % of {_number(getattr(other, name))}" for other in reason.takes_over.values()]
    return f"{' + '.join([_number(_own(reason, side)), *others])} = {_rate(getattr(reason, name))}"


def _own(reason: Reason, side: str) -> float:
    """The pool's own demand, without what it takes over."""
    name = f"tokens_{side}_per_s"
    own: float = getattr(reason, name) - sum(other.share * getattr(other, name) for other in reason.takes_over.values())
    return own


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
    return f"{text} = {_rate(_own(reason, side))}"


def _of(reason: Reason, figure: str) -> list[float]:
    """The `share` or `peak` of each metric that decided."""
    return [getattr(reason, f"{figure}_{side}") for side in _SIDES[reason.binding]]


def _capacity(reason: Reason, pool: PoolSettings) -> str:
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


def _margins_text(reason: Reason, pool: PoolSettings) -> str:
    texts, before = [], reason.required_replicas
    if [given.name for given in reason.buffers] == [ToZero.name]:
        return ToZero(reason.buffers[0].value).text(before, 0)
    for buffer, given in zip(buffers_of(pool.margin), reason.buffers, strict=True):
        texts.append(buffer.text(before, given.replicas))
        before = given.replicas
    if reason.buffers[0].name == RoundUp.name:
        texts.insert(0, f"{reason.required_replicas:.2f}")
    return ";  ".join(texts).replace(";  ->", " ->")


def _lead(reason: Reason, pool: PoolSettings) -> str:
    startup, lead = pool.startup, timedelta(seconds=reason.lead_s)
    p90, measured = startup.p90, ""
    if reason.startup_p90_s is not None and reason.startup_since is not None:
        p90 = timedelta(seconds=reason.startup_p90_s)
        measured = f" (measured from {reason.startup_starts} starts since {reason.startup_since:%Y-%m-%d})"
    if reason.lead_of:
        own = f"startup p90 {format_duration(p90)}{measured}"
        return f"{format_duration(lead)}, that of {reason.lead_of}, which starts slower; here {own}"
    publication = format_duration(lead - p90 - startup.apply_delay)
    return (
        f"startup p90 {format_duration(p90)}{measured} + publication {publication}"
        f" + apply {format_duration(startup.apply_delay)} = {format_duration(lead)}"
    )


def _rule_lines(window: FloorWindow, pool: PoolSettings) -> list[tuple[str, str]]:
    """The rules that moved the number, and the bounds even where they did not, in the order they apply."""
    moves = {move.rule: move for move in window.reason.adjustments}
    number = window.reason.adjustments[0].before if moves else window.min_replicas
    lines = []
    for rule in RULES:
        if rule == "max_replicas":
            lines.append(("bounds", f"{_bounds(number, moves, pool)}{_quotas(window.reason)}"))
        elif rule in moves and rule in _RULES:
            lines.append(_rule_line(moves[rule], pool))
        if rule in moves:
            number = moves[rule].after
    return lines


def _bounds(wanted: int, moves: dict[Rule, Adjustment], pool: PoolSettings) -> str:
    bounds = pool.bounds
    text = f"{bounds.min} to {bounds.max}"
    clamp = moves.get("max_replicas") or moves.get("min_replicas")
    if clamp is None:
        at = " and ".join(name for name in ("min", "max") if wanted == getattr(bounds, name))
        if wanted > bounds.max:
            return f"{text}, exceeded by {wanted - bounds.max} of the {bounds.exceed_by} allowed"
        return f"{text}, {wanted} is bounds.{at}" if at else f"{text}, not binding"
    text += f" and {bounds.exceed_by} more" if clamp.after > bounds.max else ""
    text += f": {clamp.before} becomes {clamp.after}"
    if clamp.before > clamp.after:
        return f"{text}, {_replicas(clamp.before - clamp.after)} short"
    return text if bounds.min else f"{text}, since demand does not stay low for the lead time and wake-up"


def _quotas(reason: Reason) -> str:
    """As `;  quota H100: 64 of 96 GPUs`."""
    labels = ((one, f" in {one.region}" if one.region else "") for one in reason.quotas)
    return "".join(f";  quota {one.gpu}{where}: {one.used:,} of {one.gpus:,} GPUs" for one, where in labels)


def _admission(reason: Reason) -> str:
    """As `chat no limit needed, batch 40 % at peak (800/s in, 1,200/s out)`, of the busiest minute's demand."""
    return ", ".join(
        f"{name} no limit needed"
        if one.share >= 1
        else f"{name} {_share(one.share)} at peak ({_rate(one.tokens_in_per_s)} in, {_rate(one.tokens_out_per_s)} out)"
        for name, one in reason.admission.items()
    )


def _share(share: float) -> str:
    """In whole percent, but never 100 % of what is not served whole."""
    return f"{min(round(100 * share), 99)} %"


def _rule_line(adjusted: Adjustment, pool: PoolSettings) -> tuple[str, str]:
    label, how = _RULES[adjusted.rule](adjusted, pool)
    return label, f"{adjusted.before} becomes {adjusted.after}{how}"


def _step_down(_adjusted: Adjustment, pool: PoolSettings) -> tuple[str, str]:
    most = pool.shape.step_down
    pace = f"down by at most {most if most >= 1 else f'{most * 100:g} %'} in {format_duration(pool.shape.every)}"
    return "step down", f", {pace}"


_AS_PUBLISHED = ", as published before for this time"
_RULES: dict[str, Callable[[Adjustment, PoolSettings], tuple[str, str]]] = {
    "gate": lambda _one, _pool: ("gate", ": closed, as floors do not pay here; minimums are left"),
    "multiple_of": lambda _one, pool: ("multiples", f", in multiples of {pool.shape.multiple_of}"),
    "hysteresis": lambda _one, pool: (
        "hysteresis",
        f"{_AS_PUBLISHED}: lower by no more than {pool.shape.hysteresis * 100:g} %",
    ),
    "scheduled_minimum": lambda one, _pool: ("schedule", f", the minimum of {one.name}"),
    "ceiling": lambda one, _pool: ("ceiling", f", the most that {one.name} allows"),
    "already_published": lambda _one, _pool: ("published", _AS_PUBLISHED),
    "dwell": lambda _one, pool: ("dwell", f", held for {format_duration(pool.shape.dwell)}"),
    "step_down": _step_down,
    "quota": lambda _one, _pool: ("quota", ", all that the quota leaves"),
}
"""By rule its label, and what follows the numbers before and after. Bounds are told in a line of their own."""


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


def _proof(proof: Proof) -> list[tuple[str, str]]:
    """As `last 7 days to 2026-11-30 at 99.2 % on time: floors 1.21, overlay alone 1.48 times the clairvoyant`."""
    floors, alone = proof.floors, proof.overlay_alone
    if floors.over_clairvoyant is None or alone.over_clairvoyant is None:
        costs, unit = (floors.gpu_hours_per_day, alone.gpu_hours_per_day), "GPU-hours a day"
        said = [f"{cost:,.0f}" for cost in costs]
    else:
        unit = "times the clairvoyant"
        said = [f"{floors.over_clairvoyant:.2f}", f"{alone.over_clairvoyant:.2f}"]
    service = f"{100 * floors.on_time:.1f} % on time"
    if abs(floors.on_time - alone.on_time) >= _SAME_SERVICE:
        service += f" ({100 * alone.on_time:.1f} % without floors)"
    lines = [
        (
            "proof",
            f"last {proof.days} days to {proof.as_of:%Y-%m-%d} at {service}: floors {said[0]}, "
            f"overlay alone {said[1]} {unit}",
        )
    ]
    if proof.applied:
        lines.append(("tuned", f"margins, shape, utilization and overlay chosen on data up to {proof.as_of:%Y-%m-%d}"))
    return lines


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
