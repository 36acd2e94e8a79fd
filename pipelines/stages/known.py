"""What the user knows beside the data: events, holidays, and which class stands for another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import KNOWN_CHANGES, Metric, conform, empty
from forecasting.events import Change, Effect, adjust, clean, effects_of, looks_back
from forecasting.factors import Rates, times_of
from forecasting.rows import Row
from forecasting.series import FloatArray, Series
from forecasting.siblings import borrow, widen
from pipelines.project import Project
from pipelines.stages.common import HISTORY, read_stored

Key = tuple[str, Metric]

TOGETHER = 100
"""Classes whose past of long ago is held at once."""


@dataclass(frozen=True)
class Known:
    """`series` as models see them: without events, and with what was borrowed. `labels` are of those that borrowed.
    `own` are those before anything was borrowed. Effects are those up to `until`, on which no plan of now depends
    further."""

    own: dict[Key, Series]
    series: dict[Key, Series]
    labels: dict[Key, str]
    effects: dict[Key, tuple[Effect, ...]]
    until: datetime

    def say_in(self, fit: Row) -> Row:
        """The row of FITS with what its history was borrowed from."""
        label = self.labels.get((str(fit["workload_class"]), Metric(str(fit["metric"]))))
        return fit if label is None else {**fit, "reason": f"{fit['reason']}; history {label}"}

    def put_onto(self, forecast: pl.DataFrame, key: Key, *, peak: float) -> pl.DataFrame:
        """The FORECASTS rows of one class and metric with what is known of it. `peak` as in `adjust`."""
        wide = widen(forecast, self.labels[key]) if key in self.labels else forecast
        return adjust(wide, self.effects.get(key, ()), step=self.series[key].step, peak=peak)

    def usual(self, demand: pl.DataFrame) -> pl.DataFrame:
        """DEMAND rows of these series with tokens as they would have been without events, null where that is hidden."""
        changed = {name for (name, _), effects in self.effects.items() if effects}
        if not changed:
            return demand
        frames = []
        for (name,), rows in demand.partition_by("workload_class", as_dict=True).items():
            if name in changed:
                seconds = pl.col("observed_fraction") * self.own[str(name), Metric.TOKENS_IN].step.total_seconds()
                rates = {
                    metric.value: pl.Series(_rates_at(self.own[str(name), metric], rows["step_start"])).fill_nan(None)
                    * seconds
                    for metric in Metric
                }
                rows = rows.with_columns(**rates)  # noqa: PLW2901 - as they would have been
            frames.append(rows)
        return pl.concat(frames)

    def changes(self, start: datetime) -> pl.DataFrame:
        """KNOWN_CHANGES of the steps from `start` on, which is on the step grid."""
        frames = [empty(KNOWN_CHANGES)]
        for (name, metric), effects in self.effects.items():
            if effects:
                step = self.series[name, metric].step
                times = pl.datetime_range(start, self.until, step, closed="left", time_zone="UTC", eager=True)
                change = Change.at(times.dt.timestamp("us").to_numpy(), effects, step=step)
                rows = {
                    "step_start": times,
                    "multiply": change.factor,
                    "add": change.added,
                    "at_least": change.least,
                    "label": change.labels,
                }
                named = pl.DataFrame(rows).with_columns(workload_class=pl.lit(name), metric=pl.lit(metric.value))
                frames.append(conform(named.filter(pl.col("label") != ""), KNOWN_CHANGES))
        return pl.concat(frames)


def apply_known(project: Project, series: Mapping[Key, Series], *, as_of: datetime) -> Known:
    """Make of the series of `read_series` those that models see."""
    config = project.config
    observed = borrow(series, config.classes)
    longest: timedelta = max(config.lead(pool) for pool in config.pools)
    until = as_of + config.horizon + longest + config.longest_wait_steps * config.step
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
                end=until,
            )
    own = {key: clean(one, effects[key]) for key, one in series.items()}
    seen = borrow(own, config.classes)
    return Known(own, seen.series, seen.labels, effects, until)


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


def _rates_at(series: Series, starts: pl.Series) -> FloatArray:
    """Its rates in the steps that begin at `starts`, all of which it reaches."""
    places = (starts - series.start).dt.total_microseconds().to_numpy() // (series.step // timedelta(microseconds=1))
    found: FloatArray = series.values[places]
    return found


def _rates(series: Series, before: Rates | None) -> Rates:
    times = times_of(series)
    if before is None:
        return Rates(series.step, times, series.values)
    earlier = before.before(series.start)
    return Rates(series.step, np.concatenate([earlier.times, times]), np.concatenate([earlier.values, series.values]))
