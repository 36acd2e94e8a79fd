"""How a project's forecasts would have fared on its stored demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from threadpoolctl import threadpool_limits

from floorcast.config import Config
from floorcast.errors import DataError, FloorcastError, LeakageError, NotFoundError
from floorcast.units import format_duration, format_time
from forecasting.rolling import roll_day_ahead, roll_lead
from forecasting.series import Series
from forecasting.verdict import Target
from forecasting.worth import Judged, judge_rolled
from pipelines.project import Project
from pipelines.stages.common import HISTORY, read_series
from pipelines.stages.fanout import on_cores
from pipelines.stages.fit import target_of

LEARNED = timedelta(days=2)
"""Before the first origin, for forecasts and margins to learn from."""

LEAST = timedelta(days=1)
"""To be judged: less tells nothing of a forecast that has a daily shape."""

LONGEST_DAYS = (HISTORY - LEARNED).days


@dataclass(frozen=True)
class Backtest:
    """Origins lie from `start` to `end`, of some series from later on, or to earlier. `left_out` says why a class was
    not judged, `failed` the same of single series."""

    start: datetime
    end: datetime
    judged: tuple[Judged, ...]
    left_out: dict[str, str]
    failed: dict[str, str]


@dataclass(frozen=True)
class _Job:
    """One series: `first` is its first origin, in steps from its start."""

    series: Series
    target: Target
    first: int
    refit_steps: int

    @property
    def where(self) -> str:
        return f"{self.series.workload_class} {self.series.metric}"


_Outcome = tuple[str, list[Judged] | str]

Track = Callable[[Iterator[_Outcome], int], Iterable[_Outcome]]


def backtest(
    project: Project, now: datetime, *, only: Collection[str], days: int, track: Track = lambda done, total: done
) -> Backtest:
    """Make the forecasts of the last `days` before `now` again, of all classes unless `only` are named, each from what
    came before it, and judge them beside naive ones. Nothing is stored.

    A class with a shorter history is judged on what there is, one with too little is left out. Raises NotFoundError for
    a class that is not configured, and DataError where none can be judged.
    """
    classes = _named(project.config, only, where=str(project.file))
    as_of = project.as_of(now)
    start = as_of - timedelta(days=days)
    series, _ = read_series(project, as_of=as_of)
    jobs: list[_Job] = []
    left_out: dict[str, str] = {}
    for name in classes:
        mine = [one for (workload_class, _), one in series.items() if workload_class == name]
        lacks = [why for one in mine if (why := _lacks(one, start))] if mine else ["no demand of it is stored"]
        if lacks:
            left_out[name] = lacks[0]
        else:
            jobs += [_job(project, one, start) for one in mine]
    if not jobs:
        name, why = next(iter(left_out.items()))
        raise DataError(
            f"no class can be judged on {format_time(start)} to {format_time(as_of)}; {name}: {why}",
            where=str(project.store_path),
            remedy="run `floorcast ingest`, give it time, or name a time with --now that has three days of demand "
            "before it",
        )
    judged: list[Judged] = []
    failed: dict[str, str] = {}
    for where, outcome in track(on_cores(_judge, jobs, names=_names), len(jobs)):
        if isinstance(outcome, str):
            failed[where] = outcome
        else:
            judged += outcome
    ranks = {name: rank for rank, name in enumerate(classes)}
    judged.sort(key=lambda one: (one.span != "lead", ranks[one.workload_class], one.metric))
    return Backtest(start, as_of, tuple(judged), left_out, failed)


def _named(config: Config, only: Collection[str], *, where: str) -> list[str]:
    if unknown := [name for name in only if name not in config.classes]:
        raise NotFoundError(f"no class {unknown[0]}", where=where, remedy=f"name one of {', '.join(config.classes)}")
    return list(dict.fromkeys(only)) or list(config.classes)


def _lacks(series: Series, start: datetime) -> str | None:
    """Why a series cannot be judged, or None where it can."""
    history = series.end - series.start
    if history < LEARNED + LEAST:
        return (
            f"{format_duration(history)} of demand are stored; {format_duration(LEARNED + LEAST)} are needed, "
            f"{format_duration(LEARNED)} to learn from and {format_duration(LEAST)} to be judged"
        )
    if series.end - start < LEAST:
        return f"its newest demand is of {format_time(series.end)}"
    return None


def _job(project: Project, series: Series, start: datetime) -> _Job:
    first = max(start, series.start + LEARNED)
    return _Job(
        series,
        target_of(project, series, series.end),
        (first - series.start) // series.step,
        max(project.config.refit_every // series.step, 1),
    )


def _judge(job: _Job) -> _Outcome:
    """Run in a worker: one series that fails stops no other."""
    try:
        with threadpool_limits(1):
            rolled = [roll_lead(job.series, target=job.target, first=job.first)]
            if job.target.horizon_steps > job.target.lead_steps:
                rolled.append(
                    roll_day_ahead(job.series, target=job.target, first=job.first, refit_steps=job.refit_steps)
                )
        return job.where, [judge_rolled(job.series, one, quantile=job.target.quantile) for one in rolled]
    except LeakageError:
        raise
    except FloorcastError as error:
        return job.where, str(error)
    except Exception as error:  # noqa: BLE001 - what a series raises costs that series its verdict, no other
        return job.where, f"{type(error).__name__}: {error}"


def _names(jobs: Sequence[_Job]) -> str:
    return ", ".join(job.where for job in jobs)
