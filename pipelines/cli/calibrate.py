"""`floorcast calibrate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from floorcast.errors import ConfigError, NotFoundError
from floorcast.pool import Pool
from floorcast.units import parse_duration
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say, say_json, say_table

if TYPE_CHECKING:
    from pipelines.calibration.files import Results
    from scaling.calibration.fit import Fitted
    from scaling.calibration.loadtest import Calibration
    from scaling.calibration.sweep import Latency, Targets

ASSUMED_PERCENTILE = 99.0
"""Where neither --percentile nor a pool's `slo.on_time` says."""


def duration_of(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _target(name: str, help_: str) -> Any:
    return typer.Option(name, parser=duration_of, metavar="DURATION", help=help_)


def _percent(value: float | None) -> float | None:
    if value is not None and not 1 <= value <= 99.99:
        hint = f"; did you mean {100 * value:g}?" if 0.01 <= value < 1 else ""
        raise typer.BadParameter(f"{value:g} is not from 1 to 99.99{hint}")
    return value


def register(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)


def calibrate(
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="Results of a load test: files, or folders of them.", show_default=False),
    ] = None,
    from_history: Annotated[
        str | None,
        typer.Option(
            "--from-history", metavar="POOL", help="In place of a load test: what this pool did in production."
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", help="The pool measured: its `slo` gives the targets that no option does, its role."),
    ] = None,
    ttft: Annotated[timedelta | None, _target("--ttft", "The longest time to the first token.")] = None,
    itl: Annotated[timedelta | None, _target("--itl", "The longest time between tokens.")] = None,
    e2e: Annotated[timedelta | None, _target("--e2e", "The longest time of a whole request.")] = None,
    percentile: Annotated[
        float | None,
        typer.Option(callback=_percent, help="Of requests that must meet them; the pool's `slo.on_time`, else 99."),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="How many replicas served the load together.")] = 1,
    combine: Annotated[
        Literal["max", "sum"] | None,
        typer.Option(help="How tokens in and out share a replica; what fits unless given."),
    ] = None,
    figure: Annotated[Path | None, typer.Option("--figure", help="Write the figures to this HTML file.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    data: DataOption = None,
    now: NowOption = None,
    as_json: JsonOption = False,
) -> None:
    """What one replica sustains within its latency targets, from a load test, or from production.

    Reads a sweep of rates or concurrencies by vllm bench serve, guidellm, AIPerf or inference-perf. The capacity is the
    highest load at which the targets are met, between the last run that meets them and the first that does not.

    With --from-history it is what a replica of the pool served when requests began to wait, as far as the pool's
    `capacity.measure` has been ingested.

    \b
    Example:
      floorcast calibrate sweep/ --ttft 2s --itl 60ms --percentile 95 --figure calibration.html
      floorcast calibrate chat.json documents.json --pool chat-70b
      floorcast calibrate --from-history chat-70b
    """
    if from_history is not None:
        test = {"RESULTS": results, "--pool": pool, "--ttft": ttft, "--itl": itl, "--e2e": e2e, "--figure": figure}
        refused = [name for name, value in (test | {"--percentile": percentile}).items() if value]
        if refused or replicas != 1:
            raise typer.BadParameter(f"{', '.join(refused) or '--replicas'} is of load tests, not of --from-history")
        from pipelines.cli.calibrate_history import from_production

        from_production(project_of(config, data), from_history, now_or(now), combine=combine, as_json=as_json)
        return
    if not results:
        raise typer.BadParameter("name the results of a load test, or a pool with --from-history")
    from pipelines.calibration import read_results
    from scaling.calibration.loadtest import calibrate as judge_runs

    spec = None if pool is None else _pool(config, pool)
    targets = _targets(spec, {"ttft": ttft, "itl": itl, "e2e": e2e}, percentile)
    found = read_results(results)
    done = judge_runs(found.points, targets, role=spec.role if spec else "unified", replicas=replicas, combine=combine)
    snippet = snippet_of(done.fitted, pool)
    if figure is not None:
        _write_figure(figure, done, targets, snippet, replicas)
    if as_json:
        say_json(_document(done, targets, found, snippet, figure, replicas))
        return
    _say_runs(done, targets, replicas)
    say(headline(done, targets))
    for note in done.notes:
        say(f"  note: {note}")
    for where, why in found.passed_over.items():
        say(f"  passed over: {where}: {why}")
    say(f"\n{snippet}")
    if figure is not None:
        say(f"figures: {figure}")


def _pool(config: Path, name: str) -> Pool:
    pools = project_of(config).config.pools
    if name not in pools:
        raise NotFoundError(f"no pool {name}", where=str(config), remedy=f"name one of {', '.join(pools)}")
    return pools[name]


def _targets(spec: Pool | None, given: Mapping[Latency, timedelta | None], percentile: float | None) -> Targets:
    """What the options say, else the pool: who waited longer than `slo.max_wait` for the first token was late."""
    from scaling.calibration.sweep import Targets

    seconds = {kind: limit.total_seconds() for kind, limit in given.items() if limit is not None}
    if not seconds and spec is not None:
        seconds = {"ttft": spec.slo.max_wait.total_seconds()}
    if not seconds or min(seconds.values()) <= 0:
        raise ConfigError(
            "there is no latency to meet" if not seconds else "a latency of 0 cannot be met",
            where="the options",
            remedy="give at least one of --ttft, --itl and --e2e, or a --pool, whose `slo.max_wait` is then the first",
        )
    known = ASSUMED_PERCENTILE if spec is None else 100 * spec.slo.on_time
    return Targets(percentile or known, seconds)


def headline(done: Calibration, targets: Targets) -> str:
    """As `one replica sustains 4,810 tokens in and 2,600 tokens out per s (sum), with p99 ttft within 2s`."""
    limits = ", ".join(f"{kind} within {_duration(limit)}" for kind, limit in targets.seconds.items())
    return f"{sustained(done.fitted, at_least=done.at_least)}, with p{targets.percentile:g} {limits}"


def sustained(fitted: Fitted, *, at_least: bool) -> str:
    words = []
    if fitted.prefill_tokens_per_s is not None:
        words.append(f"{rounded_down(fitted.prefill_tokens_per_s):,} tokens in")
    if fitted.decode_tokens_per_s is not None:
        words.append(f"{rounded_down(fitted.decode_tokens_per_s):,} tokens out")
    least = "at least " if at_least else ""
    how = f" ({fitted.combine})" if len(words) == 2 else ""
    return f"one replica sustains {least}{' and '.join(words)} per s{how}"


def snippet_of(fitted: Fitted, pool: str | None) -> str:
    """The keys to paste."""
    lines = ["pools:", f"  {pool or 'POOL'}:", "    capacity:"]
    if fitted.prefill_tokens_per_s is not None:
        lines.append(f"      prefill_tokens_per_s: {rounded_down(fitted.prefill_tokens_per_s)}")
    if fitted.decode_tokens_per_s is not None:
        lines.append(f"      decode_tokens_per_s: {rounded_down(fitted.decode_tokens_per_s)}")
    if fitted.prefill_tokens_per_s is not None and fitted.decode_tokens_per_s is not None:
        lines.append(f"      combine: {fitted.combine}")
    return "\n".join(lines) + "\n"


def rounded_down(value: float) -> int | float:
    """Three digits, downwards, so that rounding promises nothing.

    >>> rounded_down(4817.9), rounded_down(0.98765)
    (4810, 0.987)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    found = math.floor(value / unit + 1e-9) * unit
    return round(found) if unit >= 1 else round(found, 12)


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.3g}ms" if seconds < 1 else f"{seconds:.3g}s"


def _say_runs(done: Calibration, targets: Targets, replicas: int) -> None:
    kinds = list(targets.seconds)
    for sweep in done.sweeps:
        tokens_in, tokens_out = sweep.runs[0].point.mix
        say(
            f"mix {tokens_in:,.0f} + {tokens_out:,.0f} tokens a request, by load"
            + (f" on {replicas} replicas" * (replicas > 1))
        )
        say_table(
            ("offered", "requests/s", "tokens in/s", "tokens out/s", *kinds, "failed", "meets"),
            (
                (
                    _offered(run.point.offered_per_s, run.point.concurrency),
                    f"{run.point.requests_per_s:.3g}",
                    f"{run.point.tokens_in_per_s:,.0f}",
                    f"{run.point.tokens_out_per_s:,.0f}",
                    *(f"{_duration(run.measured[kind])} (p{run.percentiles[kind]:g})" for kind in kinds),
                    f"{run.point.failed_share:.1%}" if run.point.failed else "none",
                    "yes" if run.met else f"no: {run.binding}",
                )
                for run in sweep.runs
            ),
        )
        if sweep.edge is not None:
            edge = sweep.edge
            knee = f"; knee (Kneedle) at {edge.knee_per_s:.3g}" if edge.knee_per_s is not None else ""
            least = "at least " if edge.at_least else ""
            say(
                f"  edge: {least}{edge.requests_per_s:.3g} requests/s a replica, {edge.tokens_in_per_s:,.0f} tokens in "
                f"and {edge.tokens_out_per_s:,.0f} out per s{knee}"
            )
        say()


def _offered(rate: float | None, concurrency: float | None) -> str:
    if rate is not None and math.isfinite(rate):
        return f"{rate:g}/s"
    return f"{concurrency:g} at once" if concurrency is not None else "all at once" if rate is not None else "-"


def _frames(done: Calibration, replicas: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The runs and the edges as rows, of one replica; mixes are named as `1,000 + 200 tokens`."""
    runs, edges = [], []
    for sweep in done.sweeps:
        mix = " + ".join(f"{value:,.0f}" for value in sweep.runs[0].point.mix) + " tokens"
        for run in sweep.runs:
            runs.append(
                {
                    "mix": mix,
                    "source": run.point.source,
                    "offered_per_s": _finite(run.point.offered_per_s),
                    "concurrency": run.point.concurrency,
                    "requests": run.point.requests,
                    "failed": run.point.failed,
                    "requests_per_s": run.point.requests_per_s / replicas,
                    "tokens_in_per_s": run.point.tokens_in_per_s / replicas,
                    "tokens_out_per_s": run.point.tokens_out_per_s / replicas,
                    **{f"{kind}_s": value for kind, value in run.measured.items()},
                    "strain": _finite(run.strain),
                    "meets": run.met,
                }
            )
        if sweep.edge is not None:
            edge = sweep.edge
            edges.append({"mix": mix, **vars(edge), "at_least": edge.at_least})
    return runs, edges


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _write_figure(path: Path, done: Calibration, targets: Targets, snippet: str, replicas: int) -> None:
    import polars as pl

    from dashboards.calibration import calibration_page
    from pipelines.publishers.files import replace_file

    runs, edges = (pl.DataFrame(rows, infer_schema_length=None) for rows in _frames(done, replicas))
    page = calibration_page(
        runs,
        edges,
        prefill_tokens_per_s=done.fitted.prefill_tokens_per_s,
        decode_tokens_per_s=done.fitted.decode_tokens_per_s,
        combine=done.fitted.combine,
        headline=headline(done, targets),
        snippet=snippet,
        notes=[note.replace("`", "") for note in done.notes],
    )
    replace_file(path, page)


def _document(
    done: Calibration, targets: Targets, found: Results, snippet: str, figure: Path | None, replicas: int
) -> dict[str, Any]:
    runs, edges = _frames(done, replicas)
    return {
        "capacity": {
            "prefill_tokens_per_s": done.fitted.prefill_tokens_per_s,
            "decode_tokens_per_s": done.fitted.decode_tokens_per_s,
            "combine": done.fitted.combine,
            "at_least": done.at_least,
            "separated": done.fitted.separated,
            "misfit": done.fitted.misfit,
        },
        "targets": {
            "percentile": targets.percentile,
            **{f"{kind}_s": value for kind, value in targets.seconds.items()},
        },
        "tools": found.tools,
        "edges": edges,
        "runs": runs,
        "passed_over": found.passed_over,
        "notes": list(done.notes),
        "snippet": snippet,
        "figure": str(figure) if figure else None,
    }
