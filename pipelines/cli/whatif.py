"""`floorcast whatif`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from floorcast.errors import ConfigError, NotFoundError
from floorcast.pool import Pool
from floorcast.section import Section
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, project_of
from pipelines.cli.output import local, say, say_json, say_table
from pipelines.project import Project

if TYPE_CHECKING:
    from scaling.whatif import Totals

HOURS = 8
"""Hours printed: those in which floors differ most."""

_FIXED = ("step", "store", "sources", "output")
"""What is stored was made with these: another value is another history, not another plan."""

SectionT = TypeVar("SectionT", bound=Section)

SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="A key of the configuration and a value in its place; repeatable."),
]


def register(app: typer.Typer) -> None:
    @app.command("whatif")
    def command(
        settings: SetOption,
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """The same plan with another lead time, capacity, quantile or price, side by side.

        From the stored forecasts, at the time of the last publication unless --now is given, with the startups
        measured and the settings tuned by then. Nothing is stored or published.

        \b
        Example:
          floorcast whatif --set pools.chat-70b.startup.p90=10m --set pools.chat-70b.margin.quantile=0.99
        """
        from pipelines.stages.plan import planned
        from scaling.whatif import hours_apart, remarks, together, totals

        given = project_of(config, data)
        asked = _settings(settings)
        tried = project_of(config, data, settings=asked)
        as_of = given.as_of(now or _last_published(given))
        given, tried = planned_with(given, as_of), planned_with(tried, as_of, asked)
        before, after = (made.floors for made in planned(given, as_of, [given.config, tried.config]))
        sides = totals(given.config, before), totals(tried.config, after)
        sums = together(sides[0]), together(sides[1])
        hours = hours_apart(before, after, count=HOURS)
        notes = remarks(given.config, tried.config, start=as_of, covered_until=_covered_until(given, as_of))
        if as_json:
            pools = {pool: {"before": asdict(sides[0][pool]), "after": asdict(sides[1][pool])} for pool in sides[0]}
            say_json(
                {
                    "as_of": as_of,
                    "set": list(settings),
                    "pools": pools,
                    "all": {"before": asdict(sums[0]), "after": asdict(sums[1])},
                    "hours": [asdict(hour) for hour in hours],
                    "remarks": notes,
                }
            )
            return
        say(f"planned {local(as_of, given.config.zone)}, as it is -> with {', '.join(settings)}\n")
        rows = [_row(pool, sides[0][pool], sides[1][pool]) for pool in sides[0]]
        rows += [_row("all", *sums)] if len(rows) > 1 else []
        say_table(("pool", "highest floor", "mean", "replica-hours", "short replica-hours", "USD"), rows)
        say()
        if hours:
            say_table(
                ("hour", "pool", "mean floor"),
                (
                    (local(hour.start, given.config.zone), hour.pool, _pair(hour.before, hour.after, ".1f"))
                    for hour in hours
                ),
            )
        else:
            say("no floor differs")
        if notes:
            say()
        for note in notes:
            say(f"note: {note}")


def _settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f"{one!r} is not KEY=VALUE", param_hint="--set")
        if key.partition(".")[0] in _FIXED:
            raise ConfigError(
                "what is stored was made with it",
                where=f"--set {key}",
                remedy="give another configuration a `store.path` of its own, and run `floorcast cycle` with it",
            )
        settings[key] = value
    return settings


def planned_with(project: Project, as_of: datetime, asked: Collection[str] = ()) -> Project:
    """With what a plan goes by: measured startups and tuned settings, but for the keys `asked` for."""
    from pipelines.stages.startups import with_measured_startups
    from pipelines.stages.tuned import with_tunings

    found = with_measured_startups(project, as_of)
    own = {name: pool for name, pool in project.config.pools.items() if f"pools.{name}.startup.p90" in asked}
    started = replace(found, config=found.config.model_copy(update={"pools": {**found.config.pools, **own}}))
    config = with_tunings(started, as_of).config
    for key in asked:
        root, _, path = key.partition(".")
        if root == "pools":
            config = config.model_copy(update={"pools": _taken(config.pools, started.config.pools, path)})
    return replace(started, config=config)


def _taken(pools: Mapping[str, Pool], asked: Mapping[str, Pool], path: str) -> dict[str, Pool]:
    """The `pools` with the value at `path`, from a pool's name on, that it has in `asked`."""
    name, *keys = path.split(".")
    chosen = {name: _with(pools[name], asked[name], keys)} if name in pools else dict(asked)
    return {**pools, **chosen}


def _with(section: SectionT, asked: SectionT, keys: Sequence[str]) -> SectionT:
    if not keys:
        return asked
    key, *rest = keys
    value = getattr(asked, key)
    if rest and isinstance(value, Section):
        value = _with(getattr(section, key), value, rest)
    return section.model_copy(update={key: value})


def _last_published(project: Project) -> datetime:
    """Raises NotFoundError where there is no database."""
    from store.connection import open_store
    from store.publications import latest_publication

    if not project.store_path.exists():
        raise NotFoundError("no database yet", where=str(project.store_path), remedy="run `floorcast cycle` first")
    with open_store(project.store_path) as store:
        record = latest_publication(store)
    return datetime.now(UTC) if record is None else record.issued_at


def _covered_until(project: Project, as_of: datetime) -> datetime | None:
    """The end of the forecasts of the class and metric whose forecasts end first."""
    import polars as pl

    from store.connection import open_store
    from store.forecasts import read_forecast

    with open_store(project.store_path) as store:
        forecasts = read_forecast(store, at=as_of)
    ends = forecasts.group_by("workload_class", "metric").agg(pl.col("step_start").max())["step_start"].to_list()
    return min(ends) + project.config.step if ends else None


def _row(name: str, before: Totals, after: Totals) -> tuple[str, ...]:
    return (
        name,
        _pair(before.most, after.most, "d"),
        _pair(before.mean, after.mean, ".1f"),
        _pair(before.replica_hours, after.replica_hours, ",.0f"),
        _pair(before.short_replica_hours, after.short_replica_hours, ",.0f"),
        _pair(before.usd, after.usd, ",.0f"),
    )


def _pair(before: float | None, after: float | None, form: str) -> str:
    """`12 -> 14 (+17 %)`; one number where they are the same, no share where it is under half a percent."""
    texts = ["-" if value is None else format(value, form) for value in (before, after)]
    if texts[0] == texts[1]:
        return texts[0]
    share = round(100 * (after / before - 1)) if before and after is not None else 0
    return f"{texts[0]} -> {texts[1]}" + (f" ({share:+d} %)" if share else "")
