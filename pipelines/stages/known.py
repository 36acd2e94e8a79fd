"""What the user knows beside the data: events, holidays, and which class stands for another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import Metric
from forecasting.events import Effect, adjust, clean, effects_of, looks_back
from forecasting.factors import Rates, times_of
from forecasting.rows import Row
from forecasting.series import Series
from forecasting.siblings import borrow, widen
from pipelines.project import Project
from pipelines.stages.common import HISTORY, read_stored

Key = tuple[str, Metric]

TOGETHER = 100
"""Classes whose past of long ago is held at once."""


@dataclass(frozen=True)
class Known:
    """`series` as models see them: without events, and with what was borrowed. `labels` are of those that borrowed."""

    series: dict[Key, Series]
    labels: dict[Key, str]
    effects: dict[Key, tuple[Effect, ...]]

    def say_in(self, fit: Row) -> Row:
        """The row of FITS with what its history was borrowed from."""
        label = self.labels.get((str(fit["workload_class"]), Metric(str(fit["metric"]))))
        return fit if label is None else {**fit, "reason": f"{fit['reason']}; history {label}"}

    def put_onto(self, forecast: pl.DataFrame, key: Key) -> pl.DataFrame:
        """The FORECASTS rows of one class and metric with what is known of it."""
        wide = widen(forecast, self.labels[key]) if key in self.labels else forecast
        return adjust(wide, self.effects.get(key, ()), step=self.series[key].step)


def apply_known(project: Project, series: Mapping[Key, Series], *, as_of: datetime) -> Known:
    """Make of the series of `read_series` those that models see."""
    config = project.config
    observed = borrow(series, config.classes)
    longest: timedelta = max(config.lead(pool) for pool in config.pools)
    effects: dict[Key, tuple[Effect, ...]] = {}
    classes = list(dict.fromkeys(name for name, _ in observed.series))
    for begin in range(0, len(classes), TOGETHER):
        names = classes[begin : begin + TOGETHER]
        before = _read_before(project, names, as_of)
        for key, one in ((key, one) for key, one in observed.series.items() if key[0] in names):
            effects[key] = effects_of(
                config,
                *key,
                rates=_rates(one, before.get(key)),
                cutoff=one.end,
                start=one.start,
                end=as_of + config.horizon + longest,
            )
    own = {key: clean(one, effects[key]) for key, one in series.items()}
    seen = borrow(own, config.classes)
    return Known(seen.series, seen.labels, effects)


def _read_before(project: Project, names: Collection[str], as_of: datetime) -> dict[Key, Rates]:
    """What was observed before the history that models see, as far as past events need it."""
    config, step = project.config, project.config.step
    classes, windows = looks_back(config, names, as_of=as_of, before=as_of - HISTORY)
    if not windows:
        return {}
    demand = read_stored(project, windows, classes=classes)
    found: dict[Key, Rates] = {}
    for (name,), rows in demand.partition_by("workload_class", as_dict=True).items():
        times = rows["step_start"].dt.timestamp("us").to_numpy()
        seconds = rows["observed_fraction"].to_numpy() * step.total_seconds()
        for metric in Metric:
            found[str(name), metric] = Rates(step, times, rows[metric].to_numpy() / seconds)
    return found


def _rates(series: Series, before: Rates | None) -> Rates:
    times = times_of(series)
    if before is None:
        return Rates(series.step, times, series.values)
    earlier = before.before(series.start)
    return Rates(series.step, np.concatenate([earlier.times, times]), np.concatenate([earlier.values, series.values]))
