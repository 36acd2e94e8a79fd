"""Column names, units and types of every frame that crosses a package boundary.

Times are aware UTC. Rates are tokens per second. Frames are sorted by their key, which is the leading
columns as listed with each schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import polars as pl

TIME = pl.Datetime("us", "UTC")


class Metric(StrEnum):
    """What is forecast, each as tokens per second."""

    TOKENS_IN = "tokens_in"
    TOKENS_OUT = "tokens_out"


QUANTILE_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99)
"""The levels every forecast carries. Other levels between 0.5 and 0.99 are interpolated linearly."""


def quantile_column(level: float) -> str:
    """The column that holds a quantile.

    >>> quantile_column(0.975)
    'q97_5'
    """
    return f"q{level * 100:g}".replace(".", "_")


QUANTILE_COLUMNS = tuple(quantile_column(level) for level in QUANTILE_LEVELS)
MEDIAN = quantile_column(0.5)

Schema = Mapping[str, pl.DataType]

DEMAND: Schema = {
    "workload_class": pl.String(),
    "step_start": TIME,
    "tokens_in": pl.Float64(),
    "tokens_out": pl.Float64(),
    "requests": pl.Float64(),
    "peak_tokens_in_per_s": pl.Float64(),
    "peak_tokens_out_per_s": pl.Float64(),
    "observed_fraction": pl.Float64(),
    "source": pl.String(),
}
"""Key: workload_class, step_start. Sums over the step as observed; a step not observed has no row.
Peaks are the largest 1-minute mean inside the step. observed_fraction is in (0, 1]."""

STARTUPS: Schema = {
    "pool": pl.String(),
    "pod": pl.String(),
    "created_at": TIME,
    "ready_at": TIME,
    "seen_at": TIME,
    "restarts": pl.Int64(),
}
"""Key: pool, pod, created_at. Starts of pods: asked for at created_at, first ready at ready_at (null: not yet),
last seen at seen_at. restarts are those of its containers."""

POOL_LOAD: Schema = {
    "pool": pl.String(),
    "step_start": TIME,
    "ready_min": pl.Int64(),
    "ready_max": pl.Int64(),
    "waiting_requests": pl.Float64(),
}
"""Key: pool, step_start. The fewest and the most replicas that were ready within the step, and the mean number of
requests that waited. A step of which one is not known has no row."""

CACHED_TOKENS: Schema = {
    "workload_class": pl.String(),
    "step_start": TIME,
    "cached_tokens_in": pl.Float64(),
}
"""Key: workload_class, step_start. Of a step's tokens in, as observed, those that the engines took from their prefix
cache, so that they cost no prefill. A step of which that is not known has no row."""

REJECTS: Schema = {
    "source": pl.String(),
    "file": pl.String(),
    "row_number": pl.Int64(),
    "reason": pl.String(),
    "raw": pl.String(),
}
"""Rows of an input that could not be read. row_number counts data rows from 1 (0: the file as a whole)."""

FITS: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "horizon": pl.String(),
    "cutoff": TIME,
    "model": pl.String(),
    "reason": pl.String(),
    "parameters": pl.String(),
    "margins": pl.String(),
}
"""Key: workload_class, metric, horizon, cutoff. horizon is `lead` (the steps a floor due now must cover) or `outlook`
(those after them). parameters and margins are JSON objects that only `forecasting` reads."""

SCORES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "horizon": pl.String(),
    "cutoff": TIME,
    "model": pl.String(),
    "chosen": pl.Boolean(),
    "weight": pl.Float64(),
    "origins": pl.Int64(),
    "pinball": pl.Float64(),
    "wape": pl.Float64(),
    "bias": pl.Float64(),
    "seconds": pl.Float64(),
    "error": pl.String(),
}
"""Key: workload_class, metric, horizon, cutoff, model. One row per candidate. weight is its share of the forecast: of
the lead window's experts at the cutoff, of the outlook's models until the next fit, and of the `mixture` that either
make 1; what is not `chosen` is left out. pinball (tokens/s) is at the floor's quantile, over the maximum within the
lead window or over each step of the outlook; wape and bias are of the point forecast over the same (bias = sum(forecast
- actual) / sum(actual)). error says why a candidate was disqualified, else null."""

FORECASTS: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "cutoff": TIME,
    "step_start": TIME,
    "model": pl.String(),
    **{name: pl.Float64() for name in QUANTILE_COLUMNS},
}
"""Key: workload_class, metric, cutoff, step_start. Quantiles of the step's mean rate in tokens per second."""

KNOWN_CHANGES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "step_start": TIME,
    "multiply": pl.Float64(),
    "add": pl.Float64(),
    "at_least": pl.Float64(),
    "label": pl.String(),
}
"""Key: workload_class, metric, step_start. What events and holidays do to a step's rate in tokens per second: it
becomes max(rate * multiply + add, at_least). A step of which nothing is known has no row. Not stored."""

POOL_SHARES: Schema = {
    "pool": pl.String(),
    "metric": pl.String(),
    "cutoff": TIME,
    "share": pl.Float64(),
    "peak": pl.Float64(),
}
"""Key: pool, metric, cutoff. share: what a pool keeps of its classes' spread above their medians, at its quantile: 1
where they peak together, less where they peak apart. peak: the factor from there to its busiest minute, at least 1.
Of the forecasts with that cutoff, the newest among the pool's classes."""

FLOORS: Schema = {
    "pool": pl.String(),
    "window_start": TIME,
    "window_end": TIME,
    "min_replicas": pl.Int64(),
    "required_replicas": pl.Float64(),
    "rung": pl.String(),
    "reason": pl.String(),
}
"""Key: pool, window_start. One row per step. required_replicas is before margins and rounding;
reason is the JSON of `floorcast.types.Reason`."""

ACCURACY: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "horizon": pl.String(),
    "model": pl.String(),
    "first_step": TIME,
    "last_step": TIME,
    "steps": pl.Int64(),
    "wape": pl.Float64(),
    "mase": pl.Float64(),
    "pinball": pl.Float64(),
    "calibration": pl.Float64(),
    "bias": pl.Float64(),
}
"""Key: workload_class, metric, horizon, model. model is `published`, `last_value` or `seasonal_naive`; pinball
(tokens/s) and calibration (share of steps at or under the forecast) are at the floor's quantile and null for the
two baselines, which have no quantile."""


FINDINGS: Schema = {
    "kind": pl.String(),
    "workload_class": pl.String(),
    "metric": pl.String(),
    "start": TIME,
    "end": TIME,
    "severity": pl.String(),
    "masked": pl.Boolean(),
    "evidence": pl.String(),
    "pool": pl.String(),
}
"""Key: kind, workload_class, metric, start, pool. What is suspicious, from `start` to before `end`, about stored
demand, or about the capacity of a `pool`, which is empty elsewhere. workload_class and metric are empty where all are
meant. severity is `info` or `warning`; masked steps are missing to the forecaster. evidence is a JSON object of figures
and words for a person."""

REOPENED: Schema = {
    "workload_class": pl.String(),
    "step_start": TIME,
    "source": pl.String(),
    "reopened_at": TIME,
}
"""Key: workload_class, step_start. Steps whose demand was changed after it had been stored, and when that was last, by
the clock. A forecast with a later cutoff whose run had begun before was made from other data than are stored now."""

DRIFT: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "as_of": TIME,
    "kind": pl.String(),
    "cutoff": TIME,
    "value": pl.Float64(),
    "reference": pl.Float64(),
    "hours": pl.Float64(),
    "evidence": pl.String(),
}
"""Key: workload_class, metric, as_of, kind. What the forecast of as_of, with that cutoff, showed to have changed since
the fit it was made by, over so many known hours: `coverage_lost` (value: share covered, reference: quantile),
`error_risen` (mean pinball in tokens/s at the floor's quantile, since and before the fit) or `level_shifted` (mean rate
in tokens/s, now and at the same times before the fit). evidence says it in words. A fit whose cutoff is earlier is due
anew."""

TUNINGS: Schema = {
    "pool": pl.String(),
    "as_of": TIME,
    "gate": pl.String(),
    "why": pl.String(),
    "settings": pl.String(),
    "result": pl.String(),
}
"""Key: pool, as_of. What tuning found from the data before as_of. gate is `open`, `closed` or `untested`, and why says
what decided; settings are the JSON of those that belong to it, result that of `floorcast.tuning.Tuning`."""

COSTS: Schema = {
    "pool": pl.String(),
    "workload_class": pl.String(),
    "day": pl.Date(),
    "gpu_hours": pl.Float64(),
    "usd": pl.Float64(),
    "tokens": pl.Float64(),
}
"""Key: pool, workload_class, day. What floors cost, by the class that causes it, on days of the configured zone. usd
is null where the price is not known, tokens (in and out, at the forecast's median) where a step has no forecast."""


def empty(schema: Schema) -> pl.DataFrame:
    """A frame of that schema without rows."""
    return pl.DataFrame(schema=dict(schema))


def conform(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The frame with exactly the schema's columns, in its order, cast to its types.

    Raises polars' ColumnNotFoundError or InvalidOperationError where that cannot be.
    """
    return frame.select([pl.col(name).cast(dtype) for name, dtype in schema.items()])
