"""Times and durations: parsing at the edges, aware UTC inside, the step grid."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONGEST_S = 10 * 366 * 86400.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(value: object) -> timedelta:
    """Read `5m`, `1h30m`, `45s`, `2d` (units ms, s, m, h, d, w) as a non-negative duration.

    A bare number has no unit and is refused. Raises ValueError.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta):
        return value
    text = str(value).strip()
    parts = _DURATION_PART.findall(text)
    if not parts or _DURATION_PART.sub("", text).strip():
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, as in 90s, 5m, 1h30m or 2d")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise ValueError(f"{text!r} is longer than ten years")
    return timedelta(seconds=seconds)


def format_duration(value: timedelta | float) -> str:
    """Write a duration the way it is read; a number is seconds. From ten seconds on they are whole.

    >>> format_duration(570)
    '9m30s'
    >>> format_duration(1.5)
    '1s500ms'
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    left = round(seconds) * 1000 if seconds >= 10 else round(seconds * 1000)
    if left == 0:
        return "0s"
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(_SECONDS[unit] * 1000))
        text += f"{count}{unit}" if count else ""
    return text


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
]


def parse_time(value: object) -> datetime:
    """Read an ISO 8601 time as aware UTC; a time without a zone is UTC. Raises ValueError.

    >>> parse_time("2026-11-30 09:55+01:00")
    datetime.datetime(2026, 11, 30, 8, 55, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            examples = "2026-11-30T08:55 or 2026-11-30 09:55+01:00"
            raise ValueError(f"{value!r} is not a time; write it as in {examples}") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


UtcTime = Annotated[datetime, BeforeValidator(parse_time)]


def floor_to_step(moment: datetime, step: timedelta) -> datetime:
    """The start of the step that holds `moment`; steps are counted from the Unix epoch, in UTC."""
    return moment - (moment - EPOCH) % step


def ceil_to_step(moment: datetime, step: timedelta) -> datetime:
    """The first step start at or after `moment`."""
    start = floor_to_step(moment, step)
    return start if start == moment else start + step


def format_time(moment: datetime) -> str:
    """`2026-11-30T08:55:00Z`, whole seconds, always UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
