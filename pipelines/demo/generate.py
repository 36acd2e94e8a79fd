"""Draws the demo history: requests and tokens per workload class and minute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.errors import DataError
from pipelines.demo.features import PlantedFeature, planted_features
from pipelines.demo.fleet import FLEET, Audience, ClassShape, Lengths

MINUTE = timedelta(minutes=1)
MINUTES_PER_WEEK = 7 * 24 * 60

Array = npt.NDArray[np.float64]


def generate_minutes(*, end: datetime, days: int = 28, rng: np.random.Generator) -> pl.DataFrame:
    """The `days` of traffic before `end` (excluded), one row per class and observed minute.

    Columns: minute_start (aware UTC), workload_class, requests, tokens_in, tokens_out (counts in the minute).
    Sorted by workload_class and minute_start. A minute not observed has no row; an idle one has zeros. The
    same `end` and a generator of the same seed give the same frame, and `planted_features` its events.
    Raises DataError unless `end` is an aware time on a whole minute and `days` is at least 1.
    """
    if end.tzinfo is None or end.second or end.microsecond or days < 1:
        raise DataError(
            f"cannot generate {days} days that end at {end}",
            where="demo history",
            remedy="give an end on a whole minute with a time zone, and at least 1 day",
        )
    end = end.astimezone(UTC)
    features = planted_features(end=end, days=days, rng=rng)
    minutes = pl.datetime_range(
        end - timedelta(days=days), end, "1m", closed="left", time_zone="UTC", eager=True
    ).alias("minute_start")
    return pl.concat(
        _class_minutes(
            name,
            FLEET[name],
            minutes=minutes,
            features=[each for each in features if each.workload_class in (name, None)],
            rng=rng,
        )
        for name in sorted(FLEET)
    )


def _class_minutes(
    name: str,
    shape: ClassShape,
    *,
    minutes: pl.Series,
    features: Sequence[PlantedFeature],
    rng: np.random.Generator,
) -> pl.DataFrame:
    size = len(minutes)
    bursts = shape.burst_sigma * _wander(size, half_life_min=6, rng=rng)
    tides = 0.05 * _wander(size, half_life_min=300, rng=rng)  # no two Tuesdays are alike
    factors, observed = _effects(minutes, features, always=bool(shape.audiences))
    rate = 60 * shape.requests_per_s * _profile(shape, minutes) * factors * np.exp(bursts + tides)
    requests = _counts(rate, cv=shape.interarrival_cv, rng=rng)
    return pl.DataFrame(
        {
            "minute_start": minutes,
            "workload_class": pl.repeat(name, size, dtype=pl.String, eager=True),
            "requests": requests,
            "tokens_in": _token_sums(requests, shape.tokens_in, rng=rng),
            "tokens_out": _token_sums(requests, shape.tokens_out, rng=rng),
        }
    ).filter(observed)


def _effects(
    minutes: pl.Series, features: Sequence[PlantedFeature], *, always: bool
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """What the planted features make of a class: a factor on its rate, and whether it was observed, by minute.

    A class that is not `always` on has a factor of zero outside its job's runs.
    """
    factors = np.full(len(minutes), 1.0 if always else 0.0)
    observed = np.ones(len(minutes), dtype=np.bool_)
    first: datetime = minutes[0]
    for each in features:
        span = slice((each.start - first) // MINUTE, (each.end - first) // MINUTE)
        if each.kind == "gap":
            observed[span] = False
        elif each.kind == "job_run":
            factors[span] = each.factor
        elif each.kind == "spike":
            factors[span] *= np.linspace(each.factor, 1, span.stop - span.start)
        else:
            factors[span] *= each.factor
    return factors, observed


def _profile(shape: ClassShape, minutes: pl.Series) -> Array:
    """The expected rate by minute, relative to requests_per_s: clocks of the audiences, growth, hourly schedules."""
    age = np.arange(len(minutes), 0, -1)
    growth = (1 + shape.growth_per_week) ** (-age / MINUTES_PER_WEEK)
    since_hour = minutes.dt.minute().to_numpy()
    hourly = 1 + shape.top_of_hour * np.exp(-since_hour / 6)
    trend: Array = growth * hourly
    if shape.audiences:
        trend *= np.sum([_audience(each, minutes) for each in shape.audiences], axis=0)
    return trend


def _audience(audience: Audience, minutes: pl.Series) -> Array:
    """An audience's rate: given at full hours of its own clock, daylight saving included, linear between them."""
    first: datetime = minutes[0]
    last: datetime = minutes[-1]
    hours = pl.datetime_range(first.replace(minute=0), last + timedelta(hours=1), "1h", time_zone="UTC", eager=True)
    local = hours.dt.convert_time_zone(audience.zone)
    by_hour = np.array(audience.hours)[local.dt.hour().to_numpy()]
    by_weekday = np.array(audience.week)[local.dt.weekday().to_numpy() - 1]
    level: Array = np.interp(
        minutes.dt.epoch("s").to_numpy(), hours.dt.epoch("s").to_numpy(), audience.weight * by_hour * by_weekday
    )
    return level


def _wander(size: int, *, half_life_min: float, rng: np.random.Generator) -> Array:
    """A stationary first-order autoregression of unit variance: bursts that last minutes, or days that differ."""
    alpha = 1 - math.exp(-math.log(2) / half_life_min)
    spread = math.sqrt(alpha / (2 - alpha))
    noise = rng.standard_normal(size)
    noise[0] *= spread
    return pl.Series(noise).ewm_mean(alpha=alpha, adjust=False).to_numpy() / spread


def _counts(rate: Array, *, cv: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Requests per minute: negative binomial of that mean and variance cv^2 * mean (a renewal process's), cv > 1."""
    counts = np.zeros(len(rate), dtype=np.int64)
    busy = rate > 0
    counts[busy] = rng.negative_binomial(rate[busy] / (cv**2 - 1), 1 / cv**2)
    return counts


def _token_sums(
    requests: npt.NDArray[np.int64], lengths: Lengths, *, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Tokens of so many requests, at least one each.

    The sum of n lognormal lengths is taken as the lognormal of the same mean and variance (Fenton-Wilkinson),
    which is exact at n = 1. The mean length itself wanders by 4 % over hours.
    """
    sums = np.zeros(len(requests), dtype=np.int64)
    mean = lengths.mean * np.exp(0.04 * _wander(len(requests), half_life_min=120, rng=rng))
    busy = requests > 0
    count = requests[busy]
    variance = np.log1p(lengths.cv**2 / count)
    drawn = rng.lognormal(np.log(count * mean[busy]) - variance / 2, np.sqrt(variance))
    sums[busy] = np.maximum(np.rint(drawn).astype(np.int64), count)
    return sums
