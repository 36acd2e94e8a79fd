"""From samples of counters to demand steps. Pure.

A frame of samples has the columns of `SAMPLES`. Groups keep their order throughout, so that sums are the same to the
last bit each time. A *counter* is one number that one process counts; a *series* is what
one scraper stored of it under one metric name, so a counter may have several series, at once or one after another.

- A value that drops began anew from zero: the new value is the increment.
- A counter first seen while others were being scraped is a new replica's: it began at zero one scrape interval before.
  One first seen when nothing had been scraped just before may be of any age: its first value is only a reference.
- Such a count from zero is believed only where some replica was ever seen counting that fast. Else it is an old
  counter that came into view, or two scrapers' clocks mixed up by the server, and its time stays unobserved.
- An increment is spread evenly over the time between its two samples. Samples more than `GAP_INTERVALS` scrape
  intervals apart are a gap, in which that counter was not observed. After its last sample a counter counts nothing.
- Series of one counter that overlap are copies: each minute is taken from the one that covers most of it, then from
  the one with the most samples. Series that follow one another are one counter going on under another name.
- The observed share of a minute is the smaller of: the share of its time in which any counter of the class was
  observed, and the observed share of all the counters known to be there. A flat counter is observed, and idle.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import DEMAND, Schema, conform

SAMPLES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "counter": pl.Int64(),
    "series": pl.Int64(),
    "t": pl.Int64(),
    "value": pl.Float64(),
}
"""metric is one of `presets.COUNTERS`; counter and series are numbers of the caller's choice, each of one class and
metric; t is in milliseconds since 1970."""

MINUTES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "minute": pl.Int64(),
    "count": pl.Float64(),
    "observed": pl.Float64(),
}
"""Key: workload_class, metric, minute (since 1970). count is as observed; observed is the share, in (0, 1]."""

GAP_INTERVALS = 4
_MINUTE_MS = 60_000
_KEY = ["workload_class", "metric"]


def per_minute(samples: pl.DataFrame, *, start: datetime, end: datetime, scrape_interval: timedelta) -> pl.DataFrame:
    """What was counted in each minute from `start` to `end` (whole minutes): a frame of `MINUTES`.

    Samples from before `start` and after `end` serve as references. Where the samples lie further apart than
    `scrape_interval`, their median distance is taken for it.
    """
    samples = samples.unique(["series", "t"], keep="first", maintain_order=True).sort("counter", "series", "t")
    apart = samples.select((pl.col("t") - pl.col("t").shift()).over("series").median()).item()
    interval = max(round(scrape_interval / timedelta(milliseconds=1)), round(apart or 0))
    spans = _judged(_spans(samples, interval), limit=interval * GAP_INTERVALS)
    return _shares(_pieces(spans, _minute(start), _minute(end)))


def to_demand(minutes: pl.DataFrame, *, step: timedelta, source: str) -> pl.DataFrame:
    """Steps of DEMAND from `MINUTES`. A step has a row where both tokens in and tokens out were observed.

    The peak is over minutes at least half observed, and never under the step's own mean.
    """
    per_step, step_s = step // timedelta(minutes=1), step.total_seconds()
    rate = pl.col("count") / (60 * pl.col("observed"))
    steps = minutes.group_by("workload_class", "metric", step=pl.col("minute") // per_step, maintain_order=True).agg(
        count=pl.col("count").sum(),
        observed=(pl.col("observed").sum() / per_step).clip(upper_bound=1),
        peak=rate.filter(pl.col("observed") >= 0.5).max(),
    )
    steps = steps.with_columns(peak=pl.max_horizontal("peak", pl.col("count") / (step_s * pl.col("observed"))))
    on = ["workload_class", "step"]
    into, out, requests = (
        steps.filter(metric=metric).select(*on, pl.exclude(*on, "metric").name.prefix(f"{metric}_"))
        for metric in ("tokens_in", "tokens_out", "requests")
    )
    joined = into.join(out, on=on).join(requests, on=on, how="left")
    return conform(
        joined.with_columns(
            step_start=(pl.col("step") * per_step * _MINUTE_MS * 1000).cast(pl.Datetime("us", "UTC")),
            tokens_in="tokens_in_count",
            tokens_out="tokens_out_count",
            requests="requests_count",
            peak_tokens_in_per_s="tokens_in_peak",
            peak_tokens_out_per_s="tokens_out_peak",
            observed_fraction=pl.min_horizontal("tokens_in_observed", "tokens_out_observed"),
            source=pl.lit(source),
        ),
        DEMAND,
    ).sort("workload_class", "step_start")


def _spans(samples: pl.DataFrame, interval: int) -> pl.DataFrame:
    """Each sample with the time and value its increment counts from (`t0`, `value0`), and its `episode`.

    Series of a counter that overlap share an episode; the next episode's first series goes on from the last sample
    of those before it, the first episode's counts from zero if the counter is a new replica's (`born`).
    """
    series = (
        samples.group_by("counter", "series", maintain_order=True)
        .agg(first=pl.col("t").first(), last=pl.col("t").last(), last_value=pl.col("value").last())
        .sort("counter", "first", "series")
        .with_columns(before=pl.col("last").cum_max().shift().over("counter"))
        .with_columns(leads=pl.col("before").is_null() | (pl.col("first") > pl.col("before")))
        .with_columns(episode=pl.col("leads").cum_sum().over("counter"))
    )
    ends = series.group_by("counter", pl.col("last").alias("before"), maintain_order=True).agg(
        reference=pl.col("last_value").first()
    )
    # Half an interval more than one: all of a fleet is not scraped in the same instant.
    lately = pl.col("first") - interval * 3 // 2
    seen = samples.select(pl.col("t").alias("seen")).unique().sort("seen")
    series = (
        series.join(ends, on=["counter", "before"], how="left")
        .with_columns(lately=lately)
        .sort("lately")
        .join_asof(seen, left_on="lately", right_on="seen", check_sortedness=False)
        .with_columns(
            born=pl.col("before").is_null()
            & (pl.col("first") - pl.col("seen") <= interval * GAP_INTERVALS).fill_null(value=False)
        )
        .select(
            "series",
            "episode",
            "born",
            head_t=pl.when("born").then(pl.col("first") - interval).when("leads").then("before"),
            head_value=pl.when("born").then(0.0).when("leads").then("reference"),
        )
    )
    head = pl.col("t").shift().over("series").is_null()
    return (
        samples.join(series, on="series", how="left", maintain_order="left")
        .with_columns(
            t0=pl.col("t").shift().over("series").fill_null(pl.col("head_t")),
            value0=pl.col("value").shift().over("series").fill_null(pl.col("head_value")),
            born=pl.col("born") & head,
        )
        .filter(pl.col("t0").is_not_null())
        .drop("head_t", "head_value")
    )


def _judged(spans: pl.DataFrame, *, limit: int) -> pl.DataFrame:
    """Spans with `count`, null where the span was not observed."""
    width = pl.col("t") - pl.col("t0")
    risen = pl.col("value") - pl.col("value0")
    anew = pl.col("born") | (risen < 0)
    fastest = (risen / width).filter(~anew & (width <= limit)).max().over("metric")
    believed = ~anew | (pl.col("value") <= fastest * limit).fill_null(value=True)
    count = pl.when((width <= limit) & believed).then(pl.when(risen < 0).then("value").otherwise(risen))
    return spans.with_columns(count=count).filter(pl.col("count").is_not_null() | ~pl.col("born"))


def _pieces(spans: pl.DataFrame, first: int, stop: int) -> pl.DataFrame:
    """Spans cut at the minutes, those from `first` to before `stop`; `low` and `high` bound a piece, in ms."""
    minute = pl.col("minute") * _MINUTE_MS
    return (
        spans.filter((pl.col("t") > first * _MINUTE_MS) & (pl.col("t0") < stop * _MINUTE_MS))
        .with_columns(
            minute=pl.int_ranges(
                (pl.col("t0") // _MINUTE_MS).clip(lower_bound=first),
                ((pl.col("t") - 1) // _MINUTE_MS + 1).clip(upper_bound=stop),
            )
        )
        .explode("minute", empty_as_null=False)
        .with_columns(low=pl.max_horizontal("t0", minute), high=pl.min_horizontal("t", minute + _MINUTE_MS))
        .with_columns(count=pl.col("count") * (pl.col("high") - pl.col("low")) / (pl.col("t") - pl.col("t0")))
    )


def _shares(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces as `MINUTES`: copies of a counter taken once, counters of a class added up."""
    length = pl.col("high") - pl.col("low")
    counted = pl.col("count").is_not_null()
    about = [*_KEY, "counter", "episode"]
    per_counter = (
        pieces.group_by("series", "minute", maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in about),
            count=pl.col("count").sum(),
            seen=length.filter(counted).sum(),
            lost=length.filter(~counted).sum(),
            samples=counted.sum(),
        )
        .sort("seen", "samples", "series", descending=[True, True, False])
        .group_by(*about, "minute", maintain_order=True)
        .agg(pl.col("count", "seen").first(), pl.col("lost").max())
        .group_by(*_KEY, "minute", "counter", maintain_order=True)
        .agg(pl.col("count", "seen").sum(), pl.col("lost").max())
        .with_columns(lost=pl.min_horizontal("lost", (_MINUTE_MS - pl.col("seen")).clip(lower_bound=0)))
    )
    over = [*_KEY, "minute"]
    whole = per_counter.filter(pl.col("seen") >= _MINUTE_MS).select(over).unique().with_columns(time=1.0)
    partly = (
        pieces.filter(counted)
        .join(whole, on=over, how="anti", maintain_order="left")
        .sort(*over, "low", "high")
        .with_columns(new=pl.max_horizontal("low", pl.col("high").cum_max().shift().over(over)))
        .group_by(over, maintain_order=True)
        .agg(time=(pl.col("high") - pl.col("new")).clip(lower_bound=0).sum() / _MINUTE_MS)
    )
    replicas = pl.col("seen").sum() / (pl.col("seen") + pl.col("lost")).sum()
    return conform(
        per_counter.group_by(over, maintain_order=True)
        .agg(count=pl.col("count").sum(), replicas=replicas)
        .join(pl.concat([whole, partly]), on=over, maintain_order="left")
        .with_columns(observed=pl.min_horizontal("time", "replicas")),
        MINUTES,
    ).sort(*over)


def _minute(moment: datetime) -> int:
    return round(moment.timestamp()) // 60
