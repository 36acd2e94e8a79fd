"""How right the forecasts were that were really made: stored quantiles against what came."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.columns import ACCURACY, MEDIAN, QUANTILE_COLUMNS, Metric
from forecasting import accuracy
from forecasting.models.base import DAY
from forecasting.series import FloatArray, Series
from forecasting.verdict import at_level

IntArray = npt.NDArray[np.int64]

PUBLISHED = "published"
LAST_VALUE = "last_value"
SEASONAL_NAIVE = "seasonal_naive"


def evaluate(
    forecasts: pl.DataFrame,
    series: Mapping[tuple[str, Metric], Series],
    *,
    lead: Mapping[str, timedelta],
    quantile: Mapping[str, float],
) -> pl.DataFrame:
    """Accuracy by class, metric and horizon band, as a frame of `floorcast.columns.ACCURACY`.

    `forecasts` (FORECASTS) may hold many cutoffs; `lead` and `quantile` are each class's. Bands are `lead` (the
    class's lead window), `6h`, `24h` and `48h`, each from where the one before ended. The two baselines are
    computed at the same cutoffs for the same steps from what was known then, so all three rows of a band judge
    the same pairs. Bands without a pair are left out.
    """
    rows: list[dict[str, object]] = []
    for (name, metric), group in forecasts.group_by(["workload_class", "metric"], maintain_order=True):
        key = (str(name), Metric(str(metric)))
        if key in series:
            rows += _judge(group, series[key], lead=lead[key[0]], quantile=quantile[key[0]])
    return pl.DataFrame(rows, schema=dict(ACCURACY)).sort("workload_class", "metric", "horizon", "model")


def _judge(group: pl.DataFrame, series: Series, *, lead: timedelta, quantile: float) -> list[dict[str, object]]:
    step = series.step
    place, origin = _places(group["step_start"], series), _places(group["cutoff"], series)
    forecasts = group.select(QUANTILE_COLUMNS).to_numpy()
    season = DAY // step
    behind = origin - 1
    # The same time of the last whole day before the cutoff.
    season_back = place - season * (-(-(place - origin + 1) // season))
    actual = _take(series.values, place)
    judged = {
        PUBLISHED: group[MEDIAN].to_numpy(),
        LAST_VALUE: _take(_carried_forward(series.values), behind),
        SEASONAL_NAIVE: _take(series.values, season_back),
    }
    ahead = (place - origin + 1) * step.total_seconds()
    bound = at_level(forecasts, quantile)
    rows: list[dict[str, object]] = []
    shortest = 0.0
    for label, longest in _bands(lead):
        comparable = np.isfinite(actual) & np.isfinite(judged[LAST_VALUE]) & np.isfinite(judged[SEASONAL_NAIVE])
        inside = (ahead > shortest) & (ahead <= longest) & comparable
        shortest = longest
        if not inside.any():
            continue
        training = series.values[: int(origin[inside].min())]
        for model, values in judged.items():
            pair = {"actual": actual[inside], "forecast": values[inside]}
            of_bound = {"actual": actual[inside], "forecast": bound[inside]}
            rows.append(
                {
                    "workload_class": series.workload_class,
                    "metric": str(series.metric),
                    "horizon": label,
                    "model": model,
                    "first_step": series.start + int(place[inside].min()) * step,
                    "last_step": series.start + int(place[inside].max()) * step,
                    "steps": int(inside.sum()),
                    "wape": accuracy.or_none(accuracy.wape(**pair)),
                    "bias": accuracy.or_none(accuracy.bias(**pair)),
                    "mase": accuracy.or_none(accuracy.mase(**pair, training=training, season=season)),
                    "pinball": accuracy.pinball(**of_bound, quantile=quantile) if model == PUBLISHED else None,
                    "calibration": accuracy.calibration(**of_bound) if model == PUBLISHED else None,
                }
            )
    return rows


def _bands(lead: timedelta) -> list[tuple[str, float]]:
    longer = [("6h", 6 * 3600.0), ("24h", 24 * 3600.0), ("48h", float("inf"))]
    return [("lead", lead.total_seconds()), *(band for band in longer if band[1] > lead.total_seconds())]


def _places(times: pl.Series, series: Series) -> IntArray:
    """Steps from the series' start to each time."""
    microseconds = (times - series.start).dt.total_microseconds().to_numpy()
    return np.asarray(microseconds // (series.step // timedelta(microseconds=1)), dtype=np.int64)


def _take(values: FloatArray, places: IntArray) -> FloatArray:
    """Values at places, NaN where a place lies outside."""
    inside = (places >= 0) & (places < len(values))
    return np.where(inside, values[np.clip(places, 0, len(values) - 1)], np.nan)


def _carried_forward(values: FloatArray) -> FloatArray:
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], np.nan)
