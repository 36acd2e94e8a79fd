"""From samples of counters to demand steps. Pure.

A frame of samples has the columns of `SAMPLES`. Groups keep their order throughout, so that sums are the same to the
last bit each time. A *counter* is one number that one process counts; a *series* is what
one scraper stored of it under one metric name, so a counter may have several series, at once or one after another.

- A value that drops, by more than a server's rounding, began anew from zero: the new value is the increment.
- A counter first seen while others were being scraped is a new replica's: it began at zero one scrape interval before.
  One first seen when nothing had been scraped just before may be of any age: its first value is only a reference.
- Such a count from zero is believed only where some replica of its class was ever seen counting that fast; one whose
  value fell by half or more, where one of any class was. Else it is an old counter that came into view, or two
  scrapers' clocks mixed up by the server, and its time stays unobserved.
- An increment is spread evenly over the time between its two samples. Samples more than `GAP_INTERVALS` of their own
  series' scrape intervals apart are a gap, in which that counter was not observed. After its last sample a counter
  counts nothing.
- Series of one counter that overlap are copies: each minute is taken from the one that covers most of it, then from
  the one with the most samples. Series that follow one another are one counter going on under another name.
- The observed share of a minute is the smaller of: the share of its time in which any counter of the class was
  observed, and the observed share of all the counters known to be there. A flat counter is observed, and idle.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import CACHED_TOKENS, DEMAND, Schema, conform
from pipelines.sources.prometheus.presets import CACHED, COUNTERS

SAMPLES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "counter": pl.Int64(),
    "series": pl.Int64(),
    "t": pl.Int64(),
    "value": pl.Float64(),
}
"""metric is one of `presets.COUNTERS`, or CACHED; counter and series are numbers of the caller's choice, each of one
class and metric; t is in milliseconds since 1970."""

MINUTES: Schema = {
    "workload_class": pl.String(),
    "metric": pl.String(),
    "minute": pl.Int64(),
    "count": pl.Float64(),
    "observed": pl.Float64(),
}
"""Key: workload_class, metric, minute (since 1970). count is as observed; observed is the share, in (0, 1]."""

GAP_INTERVALS = 4
AT_ONCE = 1.5
"""In so many intervals all of a fleet is scraped, which it is not in the same instant."""
SLOWEST = timedelta(minutes=5)
"""What lies further apart was not scraped so on purpose, unless `scrape_interval` says so: Prometheus itself forgets a
sample that old."""
_ROUNDING = 1e-12
"""Of a value. VictoriaMetrics keeps some 15 decimal digits of a fraction, more or fewer by the block that it is in, so
that one that stands still may seem to fall."""
_MINUTE_MS = 60_000
_KEY = ["workload_class", "metric"]


def per_minute(samples: pl.DataFrame, *, start: datetime, end: datetime, scrape_interval: timedelta) -> pl.DataFrame:
    """What was counted in each minute from `start` to `end` (whole minutes): a frame of `MINUTES`.

    Samples from before `start` and after `end` serve as references, see `intervals` for how far they must reach.
    """
    samples = samples.unique(["series", "t"], keep="first", maintain_order=True).sort("counter", "series", "t")
    samples = samples.join(intervals(samples, scrape_interval=scrape_interval), on="series", maintain_order="left")
    return _shares(_pieces(_judged(_spans(samples)), _minute(start), _minute(end)))


def intervals(samples: pl.DataFrame, *, scrape_interval: timedelta) -> pl.DataFrame:
    """How far apart each series is scraped, in ms. Columns: series, interval.

    That is the median distance of its samples, and at least `scrape_interval`. A series of under three samples is
    taken for one as most of its class and metric are. Samples up to `GAP_INTERVALS` of these apart belong together.
    """
    least = scrape_interval // timedelta(milliseconds=1)
    apart = pl.col("t").sort().diff()
    return (
        samples.group_by("series", maintain_order=True)
        .agg(pl.col(_KEY).first(), own=pl.when(pl.len() > 2).then(apart.quantile(0.5, "lower")))
        .with_columns(own=pl.col("own").fill_null(pl.col("own").median().over(_KEY)).fill_null(least))
        .select(
            "series",
            interval=pl.col("own").clip(least, max(least, SLOWEST // timedelta(milliseconds=1))).cast(pl.Int64),
        )
    )


def seen_until(samples: pl.DataFrame, *, scrape_interval: timedelta) -> int | None:
    """Up to when, in ms, every series was scraped that still is; None without samples.

    A series still is scraped if it was as lately as all of a fleet is, before the newest sample.
    """
    ends = (
        samples.group_by("series")
        .agg(last=pl.col("t").max())
        .join(intervals(samples, scrape_interval=scrape_interval), on="series")
        .filter(pl.col("last") >= pl.col("last").max() - pl.col("interval") * AT_ONCE)
    )
    until = ends["last"].min()
    return until if isinstance(until, int) else None


def to_demand(minutes: pl.DataFrame, *, step: timedelta, source: str) -> pl.DataFrame:
    """Steps of DEMAND from `MINUTES`. A step has a row where both tokens in and tokens out were observed.

    All counts are of the share of the step that is its observed fraction. The peak is over minutes at least half
    observed, and never under the step's own mean.
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
        for metric in COUNTERS
    )
    joined = into.join(out, on=on).join(requests, on=on, how="left")
    # One fraction for all counts: what was seen for longer counts for as long as the rest was.
    fraction = pl.min_horizontal("tokens_in_observed", "tokens_out_observed")
    counts = {m: pl.col(f"{m}_count") * (fraction / pl.col(f"{m}_observed")) for m in COUNTERS}
    return conform(
        joined.with_columns(
            **counts,
            step_start=(pl.col("step") * per_step * _MINUTE_MS * 1000).cast(pl.Datetime("us", "UTC")),
            peak_tokens_in_per_s="tokens_in_peak",
            peak_tokens_out_per_s="tokens_out_peak",
            observed_fraction=fraction,
            source=pl.lit(source),
        ),
        DEMAND,
    ).sort("workload_class", "step_start")


def to_cached(minutes: pl.DataFrame, demand: pl.DataFrame, *, step: timedelta) -> pl.DataFrame:
    """CACHED_TOKENS of the steps of `demand`, from the `MINUTES` it was made of: of the same share of each step as its
    tokens in, and never more than them. A step of which the cache's counter was not observed has no row."""
    per_step = step // timedelta(minutes=1)
    cached = (
        minutes.filter(metric=CACHED)
        .group_by("workload_class", step=pl.col("minute") // per_step, maintain_order=True)
        .agg(count=pl.col("count").sum(), observed=pl.col("observed").sum() / per_step)
        .with_columns(step_start=(pl.col("step") * per_step * _MINUTE_MS * 1000).cast(pl.Datetime("us", "UTC")))
    )
    joined = demand.join(cached, on=["workload_class", "step_start"], how="inner", maintain_order="left")
    count = pl.col("count") * pl.col("observed_fraction") / pl.col("observed").clip(upper_bound=1)
    return conform(joined.with_columns(cached_tokens_in=pl.min_horizontal(count, "tokens_in")), CACHED_TOKENS)


def _spans(samples: pl.DataFrame) -> pl.DataFrame:
    """Each sample with the time and value its increment counts from (`t0`, `value0`), and its `episode`.

    Series of a counter that overlap share an episode; the next episode's first series goes on from the last sample
    of those before it, the first episode's counts from zero if the counter is a new replica's (`born`).
    """
    series = (
        samples.group_by("counter", "series", maintain_order=True)
        .agg(
            pl.col("interval").first(),
            first=pl.col("t").first(),
            last=pl.col("t").last(),
            last_value=pl.col("value").last(),
        )
        .sort("counter", "first", "series")
        .with_columns(before=pl.col("last").cum_max().shift().over("counter"))
        .with_columns(leads=pl.col("before").is_null() | (pl.col("first") > pl.col("before")))
        .with_columns(episode=pl.col("leads").cum_sum().over("counter"))
    )
    ends = series.group_by("counter", pl.col("last").alias("before"), maintain_order=True).agg(
        reference=pl.col("last_value").first()
    )
    lately = pl.col("first") - (pl.col("interval") * AT_ONCE).cast(pl.Int64)
    seen = samples.select(pl.col("t").alias("seen")).unique().sort("seen")
    series = (
        series.join(ends, on=["counter", "before"], how="left")
        .with_columns(lately=lately)
        .sort("lately")
        .join_asof(seen, left_on="lately", right_on="seen", check_sortedness=False)
        .with_columns(
            born=pl.col("before").is_null()
            & (pl.col("first") - pl.col("seen") <= pl.col("interval") * GAP_INTERVALS).fill_null(value=False)
        )
        .select(
            "series",
            "episode",
            "born",
            head_t=pl.when("born").then(pl.col("first") - pl.col("interval")).when("leads").then("before"),
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


def _judged(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with `count`, null where the span was not observed."""
    width, limit = pl.col("t") - pl.col("t0"), pl.col("interval") * GAP_INTERVALS
    risen = pl.col("value") - pl.col("value0")
    fell = risen < -_ROUNDING * pl.col("value0")
    anew = pl.col("born") | fell
    rate = (risen / width).filter(~anew & (width <= limit)).max()
    # An old counter of a quiet class may be within what a busy one counts. A process that was seen to begin anew may
    # have been idle before, so that its own class shows no rate.
    reset = fell & (pl.col("value") <= pl.col("value0") / 2)
    fastest = pl.when(reset).then(rate.over("metric")).otherwise(rate.over(_KEY))
    believed = ~anew | (pl.col("value") <= fastest * limit).fill_null(value=False)
    count = pl.when((width <= limit) & believed).then(pl.when(fell).then("value").otherwise(risen.clip(lower_bound=0)))
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
