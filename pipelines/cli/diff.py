"""`floorcast diff`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from floorcast.units import format_time
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, project_of
from pipelines.cli.output import local, say, say_json, say_table
from pipelines.project import Project

if TYPE_CHECKING:
    from scaling.diff import Change, PoolDiff

SHOWN = 12
"""Spans of a pool that are printed: those that changed most."""


def register(app: typer.Typer) -> None:
    @app.command("diff")
    def command(
        first: Annotated[int | None, typer.Argument(metavar="[A]", help="A version; the last but one.")] = None,
        second: Annotated[int | None, typer.Argument(metavar="[B]", help="A later version; the last.")] = None,
        config: ConfigOption = DEFAULT_CONFIG,
        as_json: JsonOption = False,
    ) -> None:
        """What changed between two publications, and why.

        Each change of a floor is shared out among its causes, which add up to it, put in one after another: a longer
        lead; by class placement, cached share, deadline or demand (a rung where that changed), quantile; share and
        peak; what is taken over; a shorter lead; capacity; margins; gate, bounds, calendar, shape, quota.

        \b
        Example:
          floorcast diff
          floorcast diff 41 42 --json
        """
        from scaling.diff import diff

        project = project_of(config)
        before, after = (_schedule(project, version) for version in _versions(project, first, second))
        pools = diff(before, after)
        if as_json:
            say_json({"before": _named(before), "after": _named(after), "pools": [_document(pool) for pool in pools]})
        else:
            _say(before, after, pools, project.config.zone)


def _versions(project: Project, first: int | None, second: int | None) -> tuple[int, int]:
    from store.connection import open_store
    from store.publications import list_publications

    if not project.store_path.exists():
        raise NotFoundError("no database yet", where=str(project.store_path), remedy="run `floorcast cycle` first")
    with open_store(project.store_path) as store:
        known = list_publications(store)["version"].to_list()
    for version in (first, second):
        if version is not None and version not in known:
            raise NotFoundError(
                f"no version {version}",
                where=str(project.store_path),
                remedy=f"use one from {known[0]} to {known[-1]}" if known else "run `floorcast cycle` first",
            )
    if first is not None and second is not None and first >= second:
        raise typer.BadParameter(
            f"version {second} is not later than version {first}"
            + (f"; give the earlier one first: floorcast diff {second} {first}" if first > second else ""),
            param_hint="B",
        )
    last = second if second is not None else known[-1] if known else 0
    earlier = [version for version in known if version < last]
    if first is None and not earlier:
        raise NotFoundError(
            f"nothing was published before version {last}" if last else "nothing is published yet",
            where=str(project.store_path),
            remedy="run `floorcast cycle` again, and compare then",
        )
    return (first if first is not None else earlier[-1]), last


def _schedule(project: Project, version: int) -> FloorSchedule:
    from store.connection import open_store
    from store.publications import read_publication

    with open_store(project.store_path) as store:
        return FloorSchedule.model_validate_json(read_publication(store, version).schedule)


def _named(schedule: FloorSchedule) -> dict[str, Any]:
    return {"version": schedule.version, "issued_at": schedule.issued_at}


def _document(pool: PoolDiff) -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "status": pool.status,
        "replica_hours": round(pool.replica_hours, 3),
        "causes": {cause: round(hours, 3) for cause, hours in pool.causes.items()},
        "changes": [
            {
                "start": format_time(change.start),
                "end": format_time(change.end),
                "before": change.before,
                "after": change.after,
                "effects": dict(change.effects),
            }
            for change in pool.changes
        ],
    }


def _say(before: FloorSchedule, after: FloorSchedule, pools: list[PoolDiff], zone: str) -> None:
    say(f"version {before.version}, issued {local(before.issued_at, zone)}")
    say(f"version {after.version}, issued {local(after.issued_at, zone)}\n")
    say_table(
        ("pool", "replica-hours", "of which"),
        (
            (
                pool.pool,
                f"{pool.replica_hours:+.1f}" if pool.status == "kept" else pool.status,
                ", ".join(f"{cause} {hours:+.1f}" for cause, hours in pool.causes.items()) or "-",
            )
            for pool in pools
        ),
    )
    for pool in pools:
        shown = sorted(sorted(pool.changes, key=lambda one: -abs(one.replica_hours))[:SHOWN], key=lambda one: one.start)
        if shown:
            say()
            say_table((pool.pool, "to", "floor", "why"), (_row(change) for change in shown))
        if len(pool.changes) > SHOWN:
            say(f"the {SHOWN} that changed most of {len(pool.changes)}; all with --json")


def _row(change: Change) -> tuple[str, str, str, str]:
    same_day = change.start.date() == change.end.date()
    why = ", ".join(f"{cause} {replicas:+d}" for cause, replicas in change.effects)
    return (
        _clock(change.start),
        f"{change.end:%H:%M}" if same_day else _clock(change.end),
        f"{change.before} -> {change.after}",
        why,
    )


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
