"""How right the forecasts were that were really made: stored quantiles against what came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.columns import ACCURACY, MEDIAN, QUANTILE_COLUMNS, Metric
from forecasting import accuracy
from forecasting.models.base import DAY
from forecasting.quality.grid import places
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
    quantile: Mapping[tuple[str, Metric], float],
) -> pl.DataFrame:
    """Accuracy by class, metric and horizon band, as a frame of `floorcast.columns.ACCURACY`.

    `forecasts` (FORECASTS) may hold many cutoffs; `lead` is each class's. Bands are `lead` (the
    greatest rate of the class's lead window, once a cutoff, since that is what a floor must cover; windows not
    observed whole are left out), `6h`, `24h` and `48h`, each step by step from where the band before ended. The two
    baselines are computed at the same cutoffs for the same steps from what was known then, so all three rows of a
    band judge the same pairs. Bands without a pair are left out.
    """
    rows: list[dict[str, object]] = []
    for (name, metric), group in forecasts.group_by(["workload_class", "metric"], maintain_order=True):
        key = (str(name), Metric(str(metric)))
        if key in series:
            rows += _judge(group, series[key], lead=lead[key[0]], quantile=quantile[key])
    return pl.DataFrame(rows, schema=dict(ACCURACY)).sort("workload_class", "metric", "horizon", "model")


def _judge(group: pl.DataFrame, series: Series, *, lead: timedelta, quantile: float) -> list[dict[str, object]]:
    step = series.step
    place, origin = (places(group[column], start=series.start, step=series.step) for column in ("step_start", "cutoff"))
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
    pairs = _Pairs(origin, place, actual, bound, judged)
    for label, longest in _bands(lead):
        band = (ahead > shortest) & (ahead <= longest)
        shortest = longest
        inside = pairs.taken(band).greatest(lead // step) if label == "lead" else pairs.taken(band)
        inside = inside.taken(inside.comparable())
        if not len(inside.actual):
            continue
        training = series.values[: int(inside.origin.min())]
        for model, values in inside.judged.items():
            pair = {"actual": inside.actual, "forecast": values}
            of_bound = {"actual": inside.actual, "forecast": inside.bound}
            rows.append(
                {
                    "workload_class": series.workload_class,
                    "metric": str(series.metric),
                    "horizon": label,
                    "model": model,
                    "first_step": series.start + int(inside.place.min()) * step,
                    "last_step": series.start + int(inside.place.max()) * step,
                    "steps": len(inside.actual),
                    "wape": accuracy.or_none(accuracy.wape(**pair)),
                    "bias": accuracy.or_none(accuracy.bias(**pair)),
                    "mase": accuracy.or_none(accuracy.mase(**pair, training=training, season=season)),
                    "pinball": accuracy.pinball(**of_bound, quantile=quantile) if model == PUBLISHED else None,
                    "calibration": accuracy.calibration(**of_bound) if model == PUBLISHED else None,
                }
            )
    return rows


@dataclass(frozen=True)
class _Pairs:
    """Forecasts and what came, an element each: the places of cutoff and step from the series' start, the actual rate,
    the bound at the floor's quantile, and the point forecasts by model."""

    origin: IntArray
    place: IntArray
    actual: FloatArray
    bound: FloatArray
    judged: dict[str, FloatArray]

    def taken(self, where: npt.NDArray[np.bool_] | IntArray) -> _Pairs:
        judged = {model: values[where] for model, values in self.judged.items()}
        return _Pairs(self.origin[where], self.place[where], self.actual[where], self.bound[where], judged)

    def comparable(self) -> npt.NDArray[np.bool_]:
        seen: npt.NDArray[np.bool_] = np.isfinite(self.actual)
        for values in self.judged.values():
            seen = seen & np.isfinite(values)
        return seen

    def greatest(self, steps: int) -> _Pairs:
        """One element a cutoff that has all `steps` steps: the greatest of each, NaN where one is."""
        ordered = self.taken(np.lexsort((self.place, self.origin)))
        _, first, counts = np.unique(ordered.origin, return_index=True, return_counts=True)
        windows = first[counts == steps][:, None] + np.arange(steps)
        judged = {model: values[windows].max(axis=1) for model, values in ordered.judged.items()}
        return _Pairs(
            ordered.origin[windows[:, 0]],
            ordered.place[windows[:, 0]],
            ordered.actual[windows].max(axis=1),
            ordered.bound[windows].max(axis=1),
            judged,
        )


def _bands(lead: timedelta) -> list[tuple[str, float]]:
    longer = [("6h", 6 * 3600.0), ("24h", 24 * 3600.0), ("48h", float("inf"))]
    return [("lead", lead.total_seconds()), *(band for band in longer if band[1] > lead.total_seconds())]


def _take(values: FloatArray, places: IntArray) -> FloatArray:
    """Values at places, NaN where a place lies outside."""
    inside = (places >= 0) & (places < len(values))
    return np.where(inside, values[np.clip(places, 0, len(values) - 1)], np.nan)


def _carried_forward(values: FloatArray) -> FloatArray:
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], np.nan)
