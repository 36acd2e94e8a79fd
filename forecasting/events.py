"""Events and holidays taken out of history, and put onto forecasts. `docs/events.md` has the rules."""

from __future__ import annotations

import calendar
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from floorcast.columns import QUANTILE_COLUMNS, Metric
from floorcast.config import Config
from floorcast.event import Event, Holidays, Window
from forecasting.factors import (
    LEAST_OCCURRENCES,
    MEMORY,
    BoolArray,
    Factor,
    IntArray,
    Rates,
    as_rest_day,
    learn,
    looked_at,
    merged,
    times_of,
    touched,
    within,
)
from forecasting.series import FloatArray, Series

LEAST_UNDONE = 0.1
"""Demand that an event lowered further than by this is not divided by its factor, but missing: noise would be all."""

LONGEST_HIDDEN = timedelta(days=3)
"""A longer occurrence stays in history, since leaving it out would leave too little to learn from."""


@dataclass(frozen=True)
class Effect:
    """What one event does to one metric of one class: quantiles become max(quantile * multiply + add, at_least).

    `windows` are its occurrences from the begin of history to the horizon. Where it `hides` them, past ones are
    missing to models instead of undone. `note` is shown with its name.
    """

    name: str
    windows: tuple[Window, ...]
    multiply: float = 1.0
    add: float = 0.0
    at_least: float = 0.0
    hides: bool = False
    note: str = ""

    @property
    def label(self) -> str:
        """As `x1.5 launch-day`."""
        if self.multiply == 1 and self.note:
            return f"{self.name}: {self.note}"
        changes = [f"x{self.multiply:.3g}"] if not self.add and not self.at_least else []
        changes += [f"+{self.add:,.6g}/s"] if self.add else []
        changes += [f"at least {self.at_least:,.6g}/s"] if self.at_least else []
        return f"{' '.join(changes)} {self.name}" + (f" ({self.note})" if self.note else "")

    def reaches(self, times: IntArray, step: timedelta) -> BoolArray:
        """The steps it changes: all that it touches, or, where it lowers demand, those that lie in it whole."""
        return (within if self.multiply < 1 else touched)(times, step, self.windows)


def effects_of(
    config: Config,
    workload_class: str,
    metric: Metric,
    *,
    rates: Rates,
    cutoff: datetime,
    start: datetime,
    end: datetime,
) -> tuple[Effect, ...]:
    """What is known to change a class's metric between `start` and `end`, as known at `cutoff`.

    `rates` are what was observed, events and all: the history that models see, and as much before as `learn` needs.
    """
    events = [event for event in config.events if not event.classes or workload_class in event.classes]
    holidays = config.classes[workload_class].holidays or config.holidays
    effects: list[Effect] = []
    learned: dict[str, list[Event]] = {}
    for event in events:
        if event.learn:
            learned.setdefault(event.name, []).append(event)
        else:
            effects += _told(event, metric, _between(event, start, end))
    if learned or holidays:
        since = cutoff - MEMORY
        days = _between(holidays, since, end) if holidays else ()
        avoid = merged([*days, *(window for event in events for window in _between(event, since, end))])
        for name, entries in learned.items():
            past = [window for event in events if event.name == name for window in _between(event, since, end)]
            factor = learn(rates, occurrences=past, avoid=avoid, zone=entries[0].zone, cutoff=cutoff)
            windows = {window for event in entries for window in _between(event, start, end)}
            effects.append(_learned(name, tuple(sorted(windows)), factor))
        if holidays:
            factor = learn(rates, occurrences=days, avoid=avoid, zone=holidays.zone, cutoff=cutoff)
            near = tuple(window for window in days if window.end > start)
            if factor.value is not None or holidays.until_learned == "ordinary":
                effects.append(_learned(holidays.label, near, factor))
            else:
                effects += _as_rest_days(holidays, near, avoid=avoid, rates=rates, cutoff=cutoff)
    return tuple(effect for effect in effects if effect.windows)


def looks_back(
    config: Config, names: Collection[str], *, as_of: datetime, before: datetime
) -> tuple[list[str], list[Window]]:
    """The classes of those named of which something is learned, and what of the time before `before` it takes."""
    classes: list[str] = []
    sources: set[Event | Holidays] = set()
    for name in names:
        spec = config.classes[name]
        events = [event for event in config.events if not event.classes or name in event.classes]
        learned = {event.name for event in events if event.learn}
        holidays = spec.holidays or config.holidays
        mine = {event for event in events if event.name in learned} | ({holidays} if holidays else set())
        classes += [name] if mine else []
        sources |= mine
    past = (looked_at(_between(source, as_of - MEMORY, as_of), before=before) for source in sources)
    return classes, merged(window for windows in past for window in windows)


@lru_cache(maxsize=4096)
def _between(known: Event | Holidays, start: datetime, end: datetime) -> tuple[Window, ...]:
    """Every class asks for the same."""
    return known.between(start, end)


def _told(event: Event, metric: Metric, windows: tuple[Window, ...]) -> list[Effect]:
    """An event whose effect the user gave; none where it does not concern the metric."""
    if event.multiply is not None:
        return [Effect(event.name, windows, multiply=event.multiply)]
    given = event.add or event.at_least
    amount = getattr(given, f"{metric}_per_s") if given else 0.0
    if not amount:
        return []
    if event.add:
        return [Effect(event.name, windows, add=amount)]
    return [Effect(event.name, windows, at_least=amount, hides=True)]


def _learned(name: str, windows: tuple[Window, ...], factor: Factor) -> Effect:
    if factor.value is None:
        note = f"{factor.known} of {LEAST_OCCURRENCES} past times known"
        return Effect(name, windows, hides=True, note=note)
    return Effect(name, windows, multiply=factor.value, hides=True)


def _as_rest_days(
    holidays: Holidays, days: tuple[Window, ...], *, avoid: Sequence[Window], rates: Rates, cutoff: datetime
) -> list[Effect]:
    """Holidays as the last day of the weekend is, an effect for each weekday that they fall on."""
    by_weekday: dict[int, list[Window]] = {}
    for window in days:
        by_weekday.setdefault(window.start.astimezone(ZoneInfo(holidays.zone)).weekday(), []).append(window)
    rest_day = holidays.rest_day()
    effects: list[Effect] = []
    for weekday, windows in sorted(by_weekday.items()):
        ratio = as_rest_day(rates, weekday=weekday, rest_day=rest_day, avoid=avoid, zone=holidays.zone, cutoff=cutoff)
        note = "too few weeks known to compare" if ratio is None else f"as {calendar.day_name[rest_day]}s are"
        effects.append(Effect(holidays.label, tuple(windows), multiply=ratio or 1.0, hides=True, note=note))
    return effects


def clean(series: Series, effects: Sequence[Effect]) -> Series:
    """The series as it would have been without the effects: undone where they can be, else missing (NaN).

    What still goes on at the series' end is undone and not hidden: the newest data must be seen.
    """
    if not effects:
        return series
    times = times_of(series)
    factor, added = np.ones(len(times)), np.zeros(len(times))
    missing = np.zeros(len(times), dtype=bool)
    for effect in effects:
        hidden = [
            window
            for window in effect.windows
            if effect.hides and window.end <= series.end and window.end - window.start <= LONGEST_HIDDEN
        ]
        missing |= touched(times, series.step, hidden)
        undone = [window for window in effect.windows if window not in hidden]
        if effect.multiply == 1 and not effect.add:
            continue
        inside, over = within(times, series.step, undone), touched(times, series.step, undone)
        if effect.multiply < LEAST_UNDONE:
            missing |= over
            continue
        missing |= over & ~inside
        factor[inside] *= effect.multiply
        added[inside] += effect.add
    values = np.maximum(series.values - added, 0.0) / factor
    return replace(series, values=np.where(missing, np.nan, values))


@dataclass(frozen=True)
class Change:
    """What effects do to rates in tokens/s, (steps,) each: one becomes max(rate * factor + added, least). `labels` name
    those that do, empty where none does."""

    factor: FloatArray
    added: FloatArray
    least: FloatArray
    labels: tuple[str, ...]

    @classmethod
    def at(cls, times: IntArray, effects: Sequence[Effect], *, step: timedelta) -> Change:
        """Of the steps that begin at `times`, in microseconds from the epoch."""
        factor, added, least = np.ones(len(times)), np.zeros(len(times)), np.zeros(len(times))
        labels: list[list[str]] = [[] for _ in times]
        for effect in effects:
            inside = effect.reaches(times, step)
            factor[inside] *= effect.multiply
            added[inside] += effect.add
            least[inside] = np.maximum(least[inside], effect.at_least)
            for place in np.flatnonzero(inside):
                labels[place].append(effect.label)
        return cls(factor, added, least, tuple(", ".join(each) for each in labels))


def adjust(forecast: pl.DataFrame, effects: Sequence[Effect], *, step: timedelta, peak: float = 1.0) -> pl.DataFrame:
    """FORECASTS rows with the effects put onto all quantiles, each changed row saying so with its model.

    `peak` is by how much floors raise a step's mean rate for its busiest minute. What `at_least` names is to be ready
    for as it is, in that minute, so that the mean rate of its steps is less.
    """
    if not effects or forecast.is_empty():
        return forecast
    change = Change.at(forecast["step_start"].dt.timestamp("us").to_numpy(), effects, step=step)
    labels = [
        f"{model}, {label}" if label else model for model, label in zip(forecast["model"], change.labels, strict=True)
    ]
    values: FloatArray = forecast.select(QUANTILE_COLUMNS).to_numpy()
    values = np.maximum(values * change.factor[:, None] + change.added[:, None], change.least[:, None] / peak)
    return forecast.with_columns(
        model=pl.Series(labels, dtype=pl.String),
        **{name: pl.Series(values[:, place]) for place, name in enumerate(QUANTILE_COLUMNS)},
    )
