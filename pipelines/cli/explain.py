"""`floorcast explain`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from floorcast.errors import NotFoundError, PublishError
from floorcast.pool import PoolSettings
from floorcast.types import FloorSchedule, FloorWindow, Reason, Rung
from floorcast.units import format_time, parse_time
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import local, say, say_json
from pipelines.project import Project

AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="The time asked about (UTC unless it has a zone); now.")
]


def register(app: typer.Typer) -> None:
    @app.command("explain")
    def command(
        pool: Annotated[str, typer.Argument(help="The pool.")],
        at: AtOption = None,
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Why a floor is what it is: the number, then every step that made it.

        The explanation is recomputed from its own figures and must arrive at the number published.

        \b
        Example:
          floorcast explain chat-70b --at "2026-11-30 08:55"
        """
        from pipelines.stages.common import count
        from pipelines.stages.tuned import in_force
        from scaling.explain import explain
        from scaling.recompute import recompute

        given = project_of(config, data)
        moment = now_or(now)
        project = in_force(given, given.as_of(moment))
        try:
            asked = parse_time(at) if at else moment
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--at") from None
        schedule, window, rung, cutoff, carried = find(project, pool, asked, moment)
        changed = changed_since(project, pool, schedule.issued_at) if cutoff else []
        proof = schedule.pools[pool].proof
        settings, since = settings_of(project, pool, schedule)
        recomputed = recompute(window.reason, settings)
        if recomputed != window.min_replicas:
            raise PublishError(
                f"the reason recomputes to {recomputed}, but {window.min_replicas} was published",
                where=f"version {schedule.version}, pool {pool}, window {format_time(window.start)}",
                remedy="run `floorcast publish` again; if it stays, report it as a bug",
            )
        if as_json:
            say_json(
                {
                    "pool": pool,
                    "at": format_time(asked),
                    "version": schedule.version,
                    "issued_at": format_time(schedule.issued_at),
                    "rung": rung.value,
                    "recomputed": recomputed,
                    "changed_data": changed,
                    "changed_settings": since,
                    "gate": schedule.pools[pool].gate,
                    "proof": proof.model_dump(mode="json") if proof else None,
                    "published_reason_of": format_time(carried.start) if carried else None,
                    **window.model_dump(mode="json"),
                }
            )
            return
        say(
            explain(
                window,
                pool_name=pool,
                pool=settings,
                zone=project.config.zone,
                version=schedule.version,
                issued_at=schedule.issued_at,
                cutoff=cutoff,
                rung=rung,
                proof=proof,
            )
        )
        if changed:
            spans = (
                f"{count(row['steps'], 'step')} of {row['workload_class']} from {row['start']:%Y-%m-%d %H:%M} to "
                f"{row['end']:%Y-%m-%d %H:%M} UTC"
                for row in changed
            )
            say(f"  changed     data since that forecast: {'; '.join(spans)}")
        if since:
            moves = (f"{key} {_shown(was)} -> {_shown(now_is)}" for key, (was, now_is) in since.items())
            say(f"  changed     settings since it was published: {'; '.join(moves)}")
        if carried:
            required = f"{carried.reason.required_replicas:.2f} replicas"
            say(f"  window      its published reason is that of {carried.start:%H:%M} UTC: {required}")
        say(f"  recomputed  {recomputed}, as published")
        if moment >= schedule.valid_until:
            say(f"  expired     {local(schedule.valid_until, project.config.zone)}: consumers have fallen back")


def settings_of(
    project: Project, pool: str, schedule: FloorSchedule
) -> tuple[PoolSettings, dict[str, tuple[object, object]]]:
    """What the floors of a pool were planned with, and by key what is configured otherwise now: before and after, None
    for what is not there.

    Raises NotFoundError where neither the schedule nor the configuration knows.
    """
    published, configured = schedule.pools[pool].settings, project.config.pools.get(pool)
    if configured is None:
        if published is None:
            near = difflib.get_close_matches(pool, project.config.pools, n=1)
            raise NotFoundError(
                f"pool {pool} is no longer configured, and version {schedule.version} does not say what it was planned "
                "with",
                where=str(project.file),
                remedy=f"did you mean {near[0]}?" if near else "use the configuration it was published with",
            )
        return published, {"pool": (pool, None)}
    if published is None:
        return configured.settings, {}
    was, now_is = (dict(_flat(each.model_dump(mode="json"))) for each in (published, configured.settings))
    keys = [key for key in {**was, **now_is} if was.get(key) != now_is.get(key)]
    return published, {key: (was.get(key), now_is.get(key)) for key in keys}


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _flat(section: dict[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """The values of a section and those below it, by dotted key."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, value


def changed_since(project: Project, pool: str, issued_at: datetime) -> list[dict[str, Any]]:
    """The data that changed after a publication was forecast from them: workload_class, steps, start, end.

    Silent once the forecasts of that cutoff were made again.
    """
    from pipelines.stages.common import HISTORY
    from store.connection import open_store
    from store.forecasts import forecasts_on_changed_data

    with open_store(project.store_path) as store:
        marked = forecasts_on_changed_data(store, at=issued_at, look_back=HISTORY)
    # Both metrics of a class look back on the same steps, unless they differ in their cutoffs.
    widest = marked.sort("steps").unique("workload_class", keep="last").sort("workload_class").to_dicts()
    return [
        {
            "workload_class": row["workload_class"],
            "steps": row["steps"],
            "start": row["first_step"],
            "end": row["last_step"] + project.config.step,
        }
        for row in widest
        if row["workload_class"] in project.config.classes_of(pool)
    ]


def find(
    project: Project, pool: str, asked: datetime, now: datetime
) -> tuple[FloorSchedule, FloorWindow, Rung, datetime | None, FloorWindow | None]:
    """The publication in force at the time asked about, the step's floor, its rung, its forecasts' cutoff, and the step
    whose reason was published for it, where that is another.

    The step's own row is read from the store, since a published window joins steps of equal floors and carries
    only its most demanding one's reason. Raises NotFoundError.
    """
    from pipelines.cli.published import published_by
    from pipelines.publishers.schedule import floor_due
    from pipelines.replay import named_pools
    from store.connection import open_store
    from store.floors import read_floors
    from store.forecasts import read_forecast

    if not project.store_path.exists():
        raise NotFoundError("no database yet", where=str(project.store_path), remedy="run `floorcast cycle` first")
    with open_store(project.store_path) as store:
        try:
            record = published_by(store, min(asked, now), option="--at" if asked < now else "--now")
        except NotFoundError:
            # Perhaps only the name is wrong; a pool of an older publication need not be configured any more.
            if pool not in project.config.pools:
                named_pools(project, [pool])
            raise
        rows = read_floors(store, record.run_id)
        forecasts = read_forecast(store, at=record.issued_at)
    schedule = FloorSchedule.model_validate_json(record.schedule)
    published = floor_due(schedule, pool, asked)
    within = (rows["window_start"] >= published.start) & (rows["window_end"] <= published.end)
    joined = rows.filter((rows["pool"] == pool) & within & (rows["min_replicas"] == published.min_replicas))
    steps = [_step(row) for row in joined.sort("window_start").iter_rows(named=True)]
    found = joined.filter((joined["window_start"] <= asked) & (joined["window_end"] > asked))
    if found.is_empty():
        # Planned again since: the reason that was published with the window is the one that holds.
        return schedule, published, schedule.pools[pool].rung, None, None
    row = found.row(0, named=True)
    window = _step(row)
    carried = next((step for step in steps if step.reason == published.reason), window)
    mine = forecasts.filter(forecasts["workload_class"].is_in(list(project.config.classes_of(pool))))
    cutoff = mine["cutoff"].min() if mine.height else None
    return (
        schedule,
        window,
        Rung(row["rung"]),
        cutoff if isinstance(cutoff, datetime) else None,
        None if carried.reason == window.reason else carried,
    )


def _step(row: dict[str, Any]) -> FloorWindow:
    """A row of FLOORS."""
    return FloorWindow(
        start=row["window_start"],
        end=row["window_end"],
        min_replicas=row["min_replicas"],
        reason=Reason.model_validate_json(row["reason"]),
    )
