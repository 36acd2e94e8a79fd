"""`floorcast replay`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floorcast.units import format_time
from pipelines.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    DataOption,
    JsonOption,
    NowOption,
    PoolsArgument,
    SeedOption,
    now_or,
    project_of,
)
from pipelines.cli.output import say, say_json, say_table
from pipelines.project import Project

if TYPE_CHECKING:
    from pipelines.replay import PoolReplay

_COLUMNS = ("policy", "margin", "GPU-hours", "x clairvoyant", "on time", "wait p95", "wait p99", "scaled out/in")


def register(app: typer.Typer) -> None:
    @app.command("replay")
    def command(
        pools: PoolsArgument = None,
        days: Annotated[float, typer.Option(min=0.05, max=60, help="How much of the past, in days.")] = 14,
        seed: SeedOption = 0,
        figure: Annotated[Path | None, typer.Option("--figure", help="Write the page to this HTML file.")] = None,
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """What every policy would have cost on the demand recorded, at the pool's promise.

        Static replicas, every overlay policy alone, and the overlay above the last value, a seasonal and a managed
        service's floors and above those that were published, each at several margins, against the clairvoyant.

        \b
        Example:
          floorcast replay chat-70b --days 7 --figure replay.html
        """
        from pipelines.progress import track
        from pipelines.replay import named_pools, replay_pool
        from pipelines.stages.tuned import in_force

        given, moment = project_of(config, data), now_or(now)
        project = in_force(given, given.as_of(moment))
        named = named_pools(project, pools)
        done = [
            replay_pool(project, name, now=moment, days=days, seed=seed)
            for name in track(named, total=len(named), label="replaying pools")
        ]
        if figure is not None:
            _write_page(figure, done, project)
        if as_json:
            say_json({"pools": [_document(one, project) for one in done], "figure": str(figure) if figure else None})
            return
        for one in done:
            _say(one, project)
        if figure is not None:
            say(f"page: {figure}")


def headline(done: PoolReplay, project: Project) -> str:
    """As `13d5h to 2026-11-30 08:50 UTC, 99% of tokens within 10s; the clairvoyant pays 1,204 GPU-hours`."""
    from floorcast.units import format_duration

    slo, best = project.config.pools[done.pool].slo, done.comparison.best
    limit = f"the clairvoyant pays {best['gpu_hours']:,.0f} GPU-hours" if best else done.comparison.impossible
    return (
        f"{format_duration(done.end - done.start)} to {done.end:%Y-%m-%d %H:%M} UTC, {100 * slo.on_time:g}% of tokens "
        f"within {format_duration(slo.max_wait)}; {limit}"
    )


def _say(done: PoolReplay, project: Project) -> None:
    say(f"{done.pool}: {headline(done, project)}")
    rows = done.comparison.at_promise(project.config.pools[done.pool].slo.on_time)
    say_table(
        _COLUMNS,
        (
            (
                row["policy"].replace("_", " "),
                "-" if row["margin"] is None else f"{row['margin']:+.0%}",
                f"{row['gpu_hours']:,.0f}",
                "-" if row["over_clairvoyant"] is None else f"{row['over_clairvoyant']:.2f}",
                f"{row['on_time_share']:.2%}" + ("" if row["kept"] else " missed"),
                f"{row['wait_p95_s']:.1f}s",
                f"{row['wait_p99_s']:.1f}s",
                f"{row['scale_outs']}/{row['scale_ins']}",
            )
            for row in rows.iter_rows(named=True)
        ),
    )
    for note in done.notes:
        say(f"  note: {note}")
    say()


def _document(done: PoolReplay, project: Project) -> dict[str, object]:
    on_time = project.config.pools[done.pool].slo.on_time
    return {
        "pool": done.pool,
        "start": format_time(done.start),
        "end": format_time(done.end),
        "on_time": on_time,
        "clairvoyant": done.comparison.best,
        "impossible": done.comparison.impossible or None,
        "policies": done.comparison.at_promise(on_time).to_dicts(),
        "tried": done.comparison.figures.to_dicts(),
        "notes": list(done.notes),
    }


def _write_page(path: Path, done: list[PoolReplay], project: Project) -> None:
    from dashboards.replay import ReplayedPool, replay_page
    from pipelines.publishers.files import replace_file

    pools = []
    for one in done:
        on_time, best = project.config.pools[one.pool].slo.on_time, one.comparison.best
        pools.append(
            ReplayedPool(
                name=one.pool,
                headline=headline(one, project),
                on_time=on_time,
                clairvoyant_gpu_hours=best["gpu_hours"] if best else None,
                figures=one.comparison.figures,
                rows=one.comparison.at_promise(on_time),
                notes=one.notes,
            )
        )
    replace_file(path, replay_page(pools))
