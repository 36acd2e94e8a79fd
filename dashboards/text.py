"""Numbers and times as the pages write them. What is not known is an en dash, never zero."""

from __future__ import annotations

import hashlib
import math
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from floorcast.units import parse_duration

UNKNOWN = "–"
FEW = 100
"""Accuracy that rests on fewer forecasts than these is shown in grey."""

_EXPERT = re.compile(r"\w+( [01]\.\d\d)?")
_UNSAFE = re.compile(r"[^a-z0-9.-]+")


def number(value: float | None, digits: int = 0) -> str:
    """With thousands separators.

    >>> number(21300.4), number(None)
    ('21,300', '–')
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as percent.

    >>> percent(0.1234)
    '12.3 %'
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value * 100:,.{digits}f} %"


def wait(seconds: float | None) -> str:
    """A time waited, to two digits or three.

    >>> wait(0.84), wait(49.2), wait(1077.5), wait(86400)
    ('0.8 s', '49 s', '18 min', '24 h')
    """
    if seconds is None or math.isnan(seconds):
        return UNKNOWN
    for unit, size, least in (("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.{1 if seconds < 10 else 0}f} s"


def when(moment: datetime | None, zone: str, *, year: bool = False) -> str:
    r"""In UTC, and in the zone where that differs; the part in brackets does not break over lines.

    >>> when(datetime(2026, 11, 30, 23, 30, tzinfo=UTC), "Europe/Berlin")
    'Mon 30 Nov 23:30 UTC (Tue\xa000:30\xa0CET)'
    """
    if moment is None:
        return UNKNOWN
    utc, local = moment.astimezone(UTC), moment.astimezone(ZoneInfo(zone))
    text = f"{utc:%a} {utc.day} {utc:%b %Y %H:%M} UTC" if year else f"{utc:%a} {utc.day} {utc:%b %H:%M} UTC"
    if local.utcoffset() == utc.utcoffset():
        return text
    day = "" if local.date() == utc.date() else f"{local:%a}\N{NO-BREAK SPACE}"
    return f"{text} ({day}{local:%H:%M}\N{NO-BREAK SPACE}{local:%Z})"


def page_name(kind: str, name: str) -> str:
    """The file of a pool's or class's page. A name that is no file name is shortened and made unique by its hash.

    >>> page_name("pool", "chat-70b")
    'pool-chat-70b.html'
    """
    safe = _UNSAFE.sub("-", name)[:63]
    if safe != name:
        safe = f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{kind}-{safe}.html"


def top_expert(model: str) -> tuple[str, float | None]:
    """The first of the experts that a forecast's model names, which has the most weight, and that weight.

    >>> top_expert("mstl_ets_day 0.58, last_value 0.42, x1.5 launch-day"), top_expert("seasonal_naive_week")
    (('mstl_ets_day', 0.58), ('seasonal_naive_week', None))
    """
    name, _, weight = model.split(", ", maxsplit=1)[0].partition(" ")
    return (name, float(weight)) if weight else (name, None)


def notes(model: str) -> tuple[str, ...]:
    """What a forecast's model says beside its experts: events, holidays, history borrowed, age.

    >>> notes("mstl_ets_day 0.58, last_value 0.31, others 0.11, x1.5 launch-day"), notes("seasonal_naive_week")
    (('x1.5 launch-day',), ())
    """
    return tuple(part for part in model.split(", ") if not _EXPERT.fullmatch(part))


def horizon_order(horizon: str) -> tuple[float, str]:
    """Sort key of horizons: named ones first, then durations by length."""
    try:
        return parse_duration(horizon).total_seconds(), horizon
    except ValueError:
        return -1.0, horizon
