"""The figures as a page: `benchmarks/results/forecast.md`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from benchmarks.forecast.judge import LEADS, LEVELS, OURS, OUTLOOK, OWN_MARGIN
from benchmarks.forecast.summary import DAILY_SHARE, SERIES, by_method, candidates
from forecasting.coverage import NEXT_TO_NOTHING

COMMAND = "python -m benchmarks.forecast --json benchmarks/results/forecast.json"

FORMS = {"add": "added in tokens/s", "ratio10": "by ratio (base 10 %)", "ratio1": "by ratio (base 1 %)"}

METHODS = """\
| method | what it is |
| --- | --- |
| floorcast | its experts combined online, fitted daily (`forecasting.mixture.replay`); day ahead its outlook |
| last_value | the newest observed rate, held |
| seasonal_naive | the rate at the same time of the last day |
| auto_arima | non-seasonal AutoARIMA of statsforecast (NVIDIA Dynamo's default), approximate search as in R's \
auto.arima past 150 points, refitted each day on all that was known then, filtered forward at every step |
| holt_winters_phpa | additive Holt-Winters, season one day, alpha = beta = gamma = 0.9 as in \
predictive-horizontal-pod-autoscaler's example |
| holt_winters_tuned | the same with the best of 60 fixed parameter sets on the days before the first origin |
| fft_crane | Crane's estimator at every step: periods of an hour and more and the 100 strongest of the last seven \
whole days, its last day as the forecast |
| fft_top | the mean and the 32 strongest harmonics of an hour and more of the same days, continued |
"""


CANDIDATES = (
    "Mean weights of daily fits, of series whose history was long enough for the candidate; those of the lead window's "
    "experts are of the newest origin."
)


def render(
    frame: pl.DataFrame, summary: Mapping[str, float], detail: Mapping[str, Any], demo: pl.DataFrame | None = None
) -> str:
    """The page, for rows as `summary.frame_of` makes them; `demo` are those of the demo history."""
    margin = str(detail["margin_of_the_headline"])
    parts = [
        "# Forecasts against the alternatives",
        f"Made by `{COMMAND}{'' if 'timing' in detail else ' --classes 0'}`. Do not edit.",
        _protocol(margin),
        METHODS,
        "## Headline",
        table(("figure", "value"), ((f"`{name}`", figure(value)) for name, value in summary.items())),
        "The ratio for every form of margin, each against the alternative that is best with it:",
        table(
            ("margin of the alternatives", "best alternative", "pinball ratio"),
            (
                (FORMS[form], detail["best_alternative_by_margin"][form], figure(ratio))
                for form, ratio in detail["pinball_ratio_by_margin"].items()
            ),
        ),
        f"On sums of tokens/s, in which large classes decide: {detail['pinball_ratio_tokens_per_s']:.3f} against "
        f"{detail['best_alternative_tokens_per_s']}.",
        "## By method, mean over classes and metrics",
        "Pinball is a share of the class's mean rate in the evaluated days. WAPE, MASE and bias are of the median; "
        "WAPE of the point is of the bare forecast, without margin. Seconds are for all origins of a series.",
    ]
    parts += [*_by_horizon(frame, margin), "## Candidates", CANDIDATES, _candidates(frame)]
    parts += [
        "## By class",
        "Loss of floorcast at 0.9 and 0.95 over both lead windows, over that of last value and of "
        f"{detail['best_alternative']} with the same margin; the worst first.",
        _classes(frame, detail["classes"]),
        "## Pinball by class, at 0.95 over the next 20 minutes",
        "As a share of the class's mean rate.",
        _by_class(frame, margin),
    ]
    if demo is not None:
        parts += ["# The demo history", _demo(demo, detail["demo"])]
    if detail["left_out"]:
        reasons = ((name, why) for name, why in detail["left_out"].items())
        parts += ["## Left out", table(("class", "why"), reasons)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _by_horizon(frame: pl.DataFrame, margin: str) -> list[str]:
    figures = by_method(frame, margin)
    return [
        part
        for horizon in (*LEADS, OUTLOOK)
        for part in (f"### {_named(horizon)}", _methods(figures.filter(pl.col("horizon") == horizon)))
    ]


def _candidates(frame: pl.DataFrame) -> str:
    rows = (
        (row["part"], row["candidate"], figure(row["mean"]), figure(row["greatest"]), str(row["led"]))
        for row in candidates(frame).to_dicts()
    )
    return table(("window", "candidate", "mean weight", "greatest weight", "series in which it led"), rows)


def _demo(frame: pl.DataFrame, detail: Mapping[str, Any]) -> str:
    margin = str(detail["margin_of_the_headline"])
    parts = [
        "The same, of the classes of `floorcast demo`; the margin that makes the best alternative best is "
        f"{FORMS[margin]}.",
        *_by_horizon(frame, margin),
        "### Candidates",
        _candidates(frame),
        "### By class",
        _classes(frame, detail["classes"]),
    ]
    return "\n\n".join(part.strip() for part in parts)


def _protocol(margin: str) -> str:
    return f"""\
Steps of 10 minutes of ServeGen's clients. Classes of each model: the four largest clients by mean tokens in, the next
eight together, the rest together, and all. Judged on the last four days, from every step: the greatest rate of the next
one and two steps; and from every hour, each of the next 144 steps. Steps in which every client reads 0 are missing:
neither believed nor judged.

Every alternative gets the same conformal margin from its own residuals of the last six days, renewed at every origin:
the ceil((n + 1) q)-th smallest. Of three forms of it, all have the one that makes the best of them best:
{FORMS[margin]}. The loss is pinball at 0.9 and 0.95 over the class's mean rate, summed over classes, metrics and both
lead windows. Calibration is over all origins after the first six days, of classes in which the mean at each time of
day, over the whole recording, explains more than {DAILY_SHARE:.0%} of the variance; day ahead over the newest fourteen
days of those, from every hour. Silence that was foretold, a rate of exactly 0 under a quantile of at most
{NEXT_TO_NOTHING:.0%} of the mean, counts as covered by each level with its own probability, as in the randomised
integral transform: a job of the night is certain to be silent by day, and plain counting would call that covered at any
level."""


def _named(horizon: str) -> str:
    return "Day ahead" if horizon == OUTLOOK else f"The greatest rate of the next {horizon.removesuffix('m')} minutes"


def _methods(figures: pl.DataFrame) -> str:
    names = [f"pinball {level}" for level in LEVELS] + [f"share under {level}" for level in LEVELS]
    header = ("method", "against best", *names, "WAPE", "WAPE of the point", "MASE", "bias", "seconds")
    columns = ["against_best"] + [f"{kind}_{level}" for kind in ("pinball", "share") for level in LEVELS]
    columns += ["wape", "point_wape", "mase", "bias", "seconds"]
    rows = figures.sort("against_best").to_dicts()
    return table(header, ((row["method"], *(figure(row[name]) for name in columns)) for row in rows))


def _classes(frame: pl.DataFrame, classes: Iterable[Mapping[str, Any]]) -> str:
    ours = frame.filter(pl.col("method") == OURS, pl.col("horizon") == list(LEADS)[-1])
    known = {(row["workload_class"], row["metric"]): row for row in ours.to_dicts()}
    header = ("class", "metric", "against last value", "against best", "mean tokens/s", "daily share of variance")
    levels = ("share under 0.9", "share under 0.95", "WAPE", "MASE", "bias")
    rows = []
    for row in classes:
        own = known[row["workload_class"], row["metric"]]
        figures = (own[name] for name in ("share_of_all_0.9", "share_of_all_0.95", "wape", "mase", "bias"))
        rows.append(
            (
                row["workload_class"],
                row["metric"],
                figure(row["against_last_value"]),
                figure(row["against_best"]),
                f"{own['mean_rate']:,.0f}",
                f"{own['daily_share']:.2f}",
                *map(figure, figures),
            )
        )
    return table((*header, *levels), rows)


def _by_class(frame: pl.DataFrame, margin: str) -> str:
    kept = frame.filter(pl.col("horizon") == list(LEADS)[-1], pl.col("margin").is_in([margin, OWN_MARGIN]))
    wide = kept.with_columns(value=pl.col("pinball_0.95") / pl.col("mean_rate")).pivot(
        "method", index=list(SERIES), values="value"
    )
    names = wide.columns[2:]
    rows = ((row[0], row[1], *map(figure, row[2:])) for row in wide.sort(SERIES).rows())
    return table(("class", "metric", *names), rows)


def figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
