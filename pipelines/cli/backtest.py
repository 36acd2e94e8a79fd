"""`floorcast backtest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from floorcast.units import format_duration, format_time
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import local, say, say_json, say_table
from pipelines.project import Project

if TYPE_CHECKING:
    from forecasting.worth import Judged
    from pipelines.backtest import Backtest

_COLUMNS = (
    *("class", "tokens", "within", "WAPE", "last, seasonal", "MASE", "bias", "covers"),
    *("pinball", "x last", "x seasonal", "days"),
)
_SPANS = {
    "lead": "lead window: the greatest rate within it, which a floor due now must cover",
    "day_ahead": "a day ahead: each step after the lead window; no floor due now depends on it",
}
_WORTH = {
    "pays": "pays for",
    "unclear": "not clear for",
    "even": "no better than a naive forecast for",
    "does_not_pay": "does not pay for",
    "untold": "not told for",
}


def register(app: typer.Typer) -> None:
    @app.command("backtest")
    def command(
        classes: Annotated[
            list[str] | None, typer.Argument(help="The classes; all unless named.", show_default=False)
        ] = None,
        days: Annotated[int, typer.Option(min=1, max=40, help="How much of the past is judged, in days.")] = 7,
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """How right the forecasts of the last days would have been, on your own history, and whether they pay.

        Every forecast is made again from what came before it, with fits as old as a cycle's would have been, and judged
        beside last value and seasonal naive, which get margins too. Stores nothing. Ten to twenty seconds a series for
        a week of five-minute steps, on all cores.

        \b
        Example:
          floorcast backtest chat batch --days 14
        """
        from pipelines.backtest import backtest
        from pipelines.progress import track
        from pipelines.stages.tuned import in_force

        given, moment = project_of(config, data), now_or(now)
        project = in_force(given, given.as_of(moment))
        done = backtest(
            project,
            moment,
            only=classes or (),
            days=days,
            track=lambda outcomes, total: track(outcomes, total=total, label="judging series"),
        )
        if as_json:
            say_json(_document(done))
        else:
            _say(done, project)


def _say(done: Backtest, project: Project) -> None:
    zone, days = project.config.zone, format_duration(done.end - done.start)
    say(f"forecasts of the last {days} to {local(done.end, zone)}, made again each from what came before it")
    for span, title in _SPANS.items():
        judged = [one for one in done.judged if one.span == span]
        if not judged:
            continue
        say(f"\n{title}")
        say_table(_COLUMNS, (_row(one, project) for one in judged))
        say()
        for one in judged:
            say(f"  {one.workload_class} {one.metric} {one.why}")
        for worth, said in _WORTH.items():
            if alike := [one for one in judged if one.worth == worth]:
                say(f"{said} {', '.join(_together(alike, judged))}")
    for name, why in {**done.left_out, **done.failed}.items():
        say(f"\n{name} is not judged: {why}")
    say("\nwhether floors made from these forecasts save GPU-hours is what `floorcast tune` tells")


def _row(one: Judged, project: Project) -> Sequence[object]:
    lead = project.config.class_lead_steps(one.workload_class) * project.config.step
    within = format_duration(lead) if one.span == "lead" else "24h"
    head = (one.workload_class, one.metric.removeprefix("tokens_"), within)
    if not one.figures:
        return (*head, *("-" for _ in _COLUMNS[len(head) :]))
    ours, last, seasonal = one.figures
    return (
        *head,
        _share(ours.wape),
        f"{_share(last.wape)}, {_share(seasonal.wape)}",
        "-" if ours.mase is None else f"{ours.mase:.2f}",
        "-" if ours.bias is None else f"{ours.bias:+.1%}",
        f"{100 * ours.covered:.1f}/{100 * one.quantile:g}%",
        f"{ours.pinball:,.0f}" if ours.pinball >= 100 else f"{ours.pinball:.3g}",
        *(f"{ours.pinball / each.pinball:.2f}" if each.pinball else "-" for each in (last, seasonal)),
        f"{one.days_better}/{one.days}",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _together(some: Sequence[Judged], every: Sequence[Judged]) -> list[str]:
    """`chat`, where all that was judged of a class is among them, else `chat tokens_in`."""
    named: list[str] = []
    for one in some:
        of_class = [each for each in every if each.workload_class == one.workload_class]
        whole = all(each in some for each in of_class)
        named.append(one.workload_class if whole else f"{one.workload_class} {one.metric}")
    return list(dict.fromkeys(named))


def _document(done: Backtest) -> dict[str, object]:
    return {
        "start": format_time(done.start),
        "end": format_time(done.end),
        "judged": [one.model_dump(mode="json") for one in done.judged],
        "left_out": done.left_out,
        "failed": done.failed,
    }
