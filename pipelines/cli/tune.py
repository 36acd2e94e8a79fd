"""`floorcast tune`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from floorcast.config import Config
from floorcast.errors import DataError
from floorcast.tuning import Expected, Interval, TunedSettings, Tuning
from floorcast.units import format_duration
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
    from pipelines.stages.tune import TuneResult

_COLUMNS = ("pool", "with", "settings", "x clairvoyant", "GPU-hours a day", "on time")


def register(app: typer.Typer) -> None:
    @app.command("tune")
    def command(
        pools: PoolsArgument = None,
        days: Annotated[
            int | None, typer.Option(min=6, max=28, help="Days to replay, in place of `tune.days`.", show_default=False)
        ] = None,
        seed: SeedOption = 0,
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Which margins, utilization and overlay a pool's own past would choose, and whether its floors pay.

        Settings are chosen by replay on the days before each judged day; cost and share on time are those of the judged
        days, in brackets between what nine of ten draws of such days lie. What is found is stored: the next plan takes
        the settings and the gate of pools with `tune: {apply: true}`. Minutes a pool.

        \b
        Example:
          floorcast tune chat-70b --days 10
        """
        from pipelines.progress import track
        from pipelines.replay import named_pools
        from pipelines.stages.runner import run_stage
        from pipelines.stages.tune import tune

        project = project_of(config, data)
        stage = partial(
            tune,
            only=named_pools(project, pools),
            days=days,
            seed=seed,
            track=lambda names: track(names, total=len(names), label="tuning pools"),
        )
        result: TuneResult = run_stage("tune", stage, project, now_or(now)).result  # type: ignore[assignment]
        if as_json:
            say_json(result.model_dump(mode="json"))
        elif result.tunings:
            _say(result.tunings, project)
        for name, why in result.failed.items():
            typer.echo(f"{name} is not tuned: {why}", err=True)
        if result.failed and not result.tunings:
            raise DataError(
                "no pool could be tuned; what was found before stands",
                where=str(project.store_path),
                remedy="see above, pool by pool",
            )


def _say(tunings: tuple[Tuning, ...], project: Project) -> None:
    rows = []
    for one in tunings:
        rows += [
            (one.pool, "now", *_row(one.now)),
            ("", "floors tuned", *_row(one.floors)),
            ("", "overlay alone tuned", *_row(one.overlay_alone)),
        ]
    say_table(_COLUMNS, rows)
    for one in tunings:
        pool = project.config.pools[one.pool]
        say(f"\n{one.pool}: gate {one.gate}: {one.why}")
        say(f"  judged on {one.days} days to {one.as_of:%Y-%m-%d %H:%M} UTC, {100 * one.promise:g} % on time promised")
        if not pool.tune.apply:
            say("  settings and gate are shown only; `tune: {apply: true}` takes them")
        else:
            heeded = "heeded" if pool.tune.gate else "not heeded"
            say(f"  its settings are planned with from now on, its gate is {heeded}")


def _row(expected: Expected) -> tuple[str, str, str, str]:
    multiple = expected.over_clairvoyant
    return (
        in_words(expected.settings),
        "-" if multiple is None else _between(multiple, ".2f"),
        _between(expected.gpu_hours_per_day, ",.0f"),
        _between(expected.on_time, ".2%"),
    )


def in_words(settings: TunedSettings) -> str:
    """`quantile 0.95 + 10 % of peaks, dwell 15m, down 10 %, U 0.75 (overlay 1), lookahead 0.9, in 10m`; from `U` on
    where there are no floors."""
    floors = ""
    if settings.quantile:
        floors = f"quantile {settings.quantile:g} + {100 * settings.minimum_margin:g} %{_said_of_floors(settings)}, "
    aim = "" if settings.overlay_utilization is None else f" (overlay {settings.overlay_utilization:g})"
    level = f" {settings.lookahead_quantile:g}" if settings.policy == "lookahead" else ""
    policy = settings.policy.replace("_", " ")
    window = format_duration(settings.scale_in_window_s)
    return f"{floors}U {settings.target_utilization:g}{aim}, {policy}{level}, in {window}"


def _said_of_floors(settings: TunedSettings) -> str:
    """As ` of peaks, 1 warm, dwell 15m, down 10 %`; without what is as the pool's own."""
    said = "" if settings.peak is None else f" of {'peaks' if settings.peak else 'means'}"
    said += f", {settings.warm} warm" if settings.warm else ""
    said += f", dwell {format_duration(settings.dwell_s)}" if settings.dwell_s else ""
    if settings.step_down is not None:
        said += f", down {100 * settings.step_down:g} %" if settings.step_down < 1 else f", down {settings.step_down:g}"
    return said


def said_tunings(config: Config, tunings: Mapping[str, Tuning]) -> dict[str, str]:
    """By pool that takes what was tuned: as `quantile 0.9 + 25 %, U 0.6, lookahead 0.8, in 5m, tuned on data up to
    2026-11-16`."""
    from pipelines.stages.tuned import settings_in_force

    return {
        name: f"{in_words(settings_in_force(pool, tunings[name]))}, tuned on data up to {tunings[name].as_of:%Y-%m-%d}"
        for name, pool in config.pools.items()
        if pool.tune.apply and name in tunings
    }


def _between(interval: Interval, form: str) -> str:
    """`1.21 (1.15 to 1.30)`."""
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"
