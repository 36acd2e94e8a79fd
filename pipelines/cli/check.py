"""What `floorcast check` finds and prints."""

from __future__ import annotations

import shutil
import sys
import textwrap
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from floorcast.columns import DEMAND, Metric, empty
from floorcast.source import PrometheusSource, SqlSource, TraceSource
from floorcast.units import format_duration
from pipelines.cli.check_magnitudes import busiest_of_pools, rates_of_classes, said_rates
from pipelines.cli.output import say, say_table
from pipelines.project import Project
from pipelines.stages.common import count

NEEDS = (
    (timedelta(days=42) / 2, "all models"),
    (timedelta(days=3) * 1.5, "daily models; a weekly shape needs three weeks"),
    (timedelta(0), "last value only; a daily shape needs four and a half days"),
)
"""What a history of at least so long lets a backtest use, whose candidates see two thirds of it."""


def examine(project: Project, now: datetime) -> dict[str, Any]:
    """What each source holds, and which pools `serve` gets no live signals of. Raises what reading it for `ingest`
    raises."""
    from pipelines.service.questions import ask_of
    from pipelines.stages.load import stored_contradictions
    from pipelines.stages.startups import said_startups, with_measured_startups

    project = with_measured_startups(project, project.as_of(now))
    read = [_examine(source, project, now) for source in project.config.sources]
    sources = [document for document, _ in read]
    demand = pl.concat([empty(DEMAND), *(one for _, one in read)])
    for document, one in read:
        rates = rates_of_classes(one, project.config.step)
        for entry in document["classes"]:
            entry["tokens_per_s"] = rates.get(entry["class"])
    seen = {entry["class"] for source in sources for entry in source["classes"] if entry["first"]}
    return {
        "config": str(project.file),
        "mode": project.config.mode,
        "pools": {name: format_duration(project.config.lead(name)) for name in project.config.pools},
        "busiest": busiest_of_pools(project.config, demand, now=now),
        "startups": said_startups(project),
        "capacity_contradicted": stored_contradictions(project, now),
        "calendars": {
            name: [entry.said(project.config.zone) for entry in pool.calendar]
            for name, pool in project.config.pools.items()
            if pool.calendar
        },
        "sources": sources,
        "without_live_signals": [str(one) for one in ask_of(project.config, latencies=False)[1]],
        "classes_without_demand": sorted(set(project.config.classes) - seen),
    }


def _examine(
    source: TraceSource | PrometheusSource | SqlSource, project: Project, now: datetime
) -> tuple[dict[str, Any], pl.DataFrame]:
    """What it holds, and the DEMAND that was read for that."""
    if isinstance(source, PrometheusSource):
        return _examine_live(source, project, now)
    if isinstance(source, SqlSource):
        return _examine_sql(source, project, now)
    return _examine_trace(source, project, now)


def _examine_live(source: PrometheusSource, project: Project, now: datetime) -> tuple[dict[str, Any], pl.DataFrame]:
    from pipelines.sources import examine as examine_live
    from pipelines.sources import import_prometheus
    from pipelines.sources.prometheus.client import address
    from pipelines.sources.prometheus.presets import COUNTERS

    config, classes = project.config, []
    for one in examine_live(source, config.classes, now):
        tokens = [counter for counter in one.counters if counter.metric in COUNTERS[:2]]
        firsts = [counter.first for counter in tokens if counter.first]
        lasts = [counter.last for counter in tokens if counter.last]
        counters = [
            counter.model_dump()
            | {
                "resolution_s": counter.resolution.total_seconds() if counter.resolution else None,
                "history_s": (counter.last - counter.first).total_seconds() if counter.first and counter.last else 0,
            }
            for counter in one.counters
        ]
        for counter in counters:
            del counter["resolution"]
        classes.append(
            {
                "class": one.workload_class,
                "labels": one.labels,
                "first": max(firsts) if len(firsts) == len(tokens) else None,
                "last": min(lasts) if len(lasts) == len(tokens) else None,
                "counters": counters,
                "signals": [signal.model_dump() for signal in one.signals],
                "missing": list(one.missing),
            }
        )
    day = import_prometheus(source, classes=config.classes, step=config.step, start=now - timedelta(days=1), end=now)
    demand = pl.concat([empty(DEMAND), *(chunk.demand for chunk in day)])
    about = {"source": source.name, "kind": source.kind, "url": address(source)}
    return about | {"asked_for": "queries" if source.queries else source.preset, "classes": classes}, demand


def _examine_sql(source: SqlSource, project: Project, now: datetime) -> tuple[dict[str, Any], pl.DataFrame]:
    from pipelines.sources.sql.examine import examine_sql
    from pipelines.sources.sql.importer import as_trace
    from pipelines.sources.traces.result import check_reject_share

    config = project.config
    found, demand = examine_sql(source, classes=list(config.classes), step=config.step, now=now, base=project.base)
    check_reject_share(
        as_trace(source),
        rejected=found.rejected,
        examples=found.examples,
        rows_considered=found.rows,
        where=f"source {source.name}, the last day",
    )
    document = found.model_dump(exclude={"classes"})
    classes = [
        {
            "class": one.workload_class,
            # When the source as a whole began and ended: it tells no more of a class than the last day's sums.
            "first": found.first if one.requests else None,
            "last": found.last if one.requests else None,
            **one.model_dump(exclude={"workload_class"}),
        }
        for one in found.classes
    ]
    return {"source": source.name, "kind": source.kind, **document, "classes": classes}, demand


def _examine_trace(source: TraceSource, project: Project, now: datetime) -> tuple[dict[str, Any], pl.DataFrame]:
    from pipelines.stages.reading import is_present, read_trace

    config = project.config
    found, (ahead, newest_ahead) = read_trace(project, source, now, at_present=is_present(now, step=config.step))
    classes = []
    for (name,), rows in found.demand.group_by(["workload_class"], maintain_order=True):
        first, last = rows["step_start"].min(), rows["step_start"].max()
        history = (last - first + config.step) if isinstance(first, datetime) and isinstance(last, datetime) else None
        classes.append(
            {
                "class": name,
                "first": first,
                "last": last,
                "steps": rows.height,
                "missing_steps": history // config.step - rows.height if history else 0,
                "age_s": (now - last - config.step).total_seconds() if isinstance(last, datetime) else None,
                "allows": next(words for need, words in NEEDS if history is None or history >= need),
            }
        )
    document = {
        "source": source.name,
        "kind": source.kind,
        "rows": found.rows_read,
        "rejected": found.rejected,
        "examples": found.examples,
        "incomplete_step": found.incomplete_step,
        "row_interval_s": source.row_interval.total_seconds() if source.row_interval else None,
        "rows_apart_s": found.rows_apart.total_seconds() if found.rows_apart else None,
        "ahead": ahead,
        "newest_ahead": newest_ahead,
        "classes": classes,
    }
    return document, found.demand


def say_examined(found: dict[str, Any], project: Project) -> None:
    say(f"{found['config']}: valid, mode {found['mode']}")
    for pool, lead in found["pools"].items():
        say(f"  pool {pool}: lead time {lead}, serves {', '.join(project.config.classes_of(pool))}")
        _say_busiest(found["busiest"].get(pool), project, pool)
        if pool in found["startups"]:
            say(f"    startup: {found['startups'][pool]}")
        for entry in found["capacity_contradicted"].get(pool, ()):
            _say_folded(f"  capacity contradicted: {entry['says']}; {entry['remedy']}")
        for entry in found["calendars"].get(pool, ()):
            say(f"    {entry}")
    for source in found["sources"]:
        {"prometheus": _say_live, "sql": _say_sql, "trace": _say_trace}[source["kind"]](source)
    for entry in (entry for source in found["sources"] for entry in source["classes"]):
        if entry.get("age_s") and entry["age_s"] > project.config.horizon.total_seconds():
            _say_folded(
                f"class {entry['class']}: the newest data are {format_duration(entry['age_s'])} old, too old to "
                f"forecast from; floors will be those of past weeks, or {_fallback(project, entry['class'])}"
            )
    if not found["sources"]:
        say("\nno sources yet: add one under `sources`")
    for untold in found["without_live_signals"]:
        _say_folded(untold)
    for name in found["classes_without_demand"]:
        _say_folded(f"class {name}: no demand in any source; floors will be {_fallback(project, name)}")


def _say_busiest(busiest: dict[str, Any] | None, project: Project, pool: str) -> None:
    if busiest is None:
        return
    bounds, needed = project.config.pools[pool].bounds, count(busiest["replicas"], "replica")
    say(f"    about {needed} at the busiest step, {_clock(busiest['step'])} (bounds {bounds.min} to {bounds.max})")
    if busiest["replicas"] > bounds.max:
        _say_folded(
            f"  that is more than bounds.max: check the units (tokens, not thousands of them; capacity in tokens per "
            f"second of one replica; row_interval where rows are sums), or raise bounds.max above {bounds.max}"
        )


def _say_rates(source: dict[str, Any]) -> None:
    for entry in source["classes"]:
        if entry["tokens_per_s"] is not None:
            _say_folded(f"{entry['class']}: {said_rates(entry['tokens_per_s'])}")


def _fallback(project: Project, workload_class: str) -> str:
    """As `fallback_replicas (30)`, of each pool where there are several."""
    from scaling.ladder import fallback_replicas

    config = project.config
    pools = dict.fromkeys(config.pool_of(workload_class, metric) for metric in Metric)
    of = {pool: fallback_replicas(config.pools[pool]) for pool in pools}
    each = (f"{count} of {pool}" if len(of) > 1 else str(count) for pool, count in of.items())
    return f"fallback_replicas ({', '.join(each)})"


def _say_trace(source: dict[str, Any]) -> None:
    say(f"\nsource {source['source']}: {source['rows']:,} rows")
    say_table(
        ("class", "steps", "missing", "first", "last", "allows"),
        (
            (
                entry["class"],
                f"{entry['steps']:,}",
                f"{entry['missing_steps']:,}",
                _clock(entry["first"]),
                _clock(entry["last"]),
                entry["allows"],
            )
            for entry in source["classes"]
        ),
    )
    _say_rates(source)
    apart, interval = source["rows_apart_s"], source["row_interval_s"]
    if apart is not None and apart > interval:
        _say_folded(
            f"rows are {format_duration(apart)} apart, row_interval is {format_duration(interval)}: most of the time "
            f"would count as not observed; write row_interval: {format_duration(apart)} if a row is the sum over that"
        )
    _say_unused(source)


def _say_sql(source: dict[str, Any]) -> None:
    zone = "" if source["zone"] else "; times without a zone are taken for UTC"
    say(f"\nsource {source['source']}: {_clock(source['first'])} to {_clock(source['last'])}{zone}")
    say(f"  last day: {source['rows']:,} rows")
    say_table(
        ("class", "requests", "tokens in", "tokens out"),
        (
            (entry["class"], *(f"{entry[metric]:,}" for metric in ("requests", "tokens_in", "tokens_out")))
            for entry in source["classes"]
        ),
    )
    _say_rates(source)
    _say_unused(source)


def _say_unused(source: dict[str, Any]) -> None:
    for reason, rows in source["rejected"].items():
        say(f"  rejected {count(rows, 'row')}: {reason}, e.g. {source['examples'].get(reason, '')}")
    if source["ahead"]:
        newest = f"the newest {_clock(source['newest_ahead'])}" if source["newest_ahead"] else "by more than a month"
        say(f"  {count(source['ahead'], 'row')} stamped after now, {newest}: not read")


def _say_live(source: dict[str, Any]) -> None:
    """A block for each class. It fits 80 columns, but for names and labels, which are never cut."""
    from pipelines.sources.prometheus.presets import CACHED

    asked = "your queries" if source["asked_for"] == "queries" else f"preset {source['asked_for']}"
    say(f"\nsource {source['source']}: {source['url']}, {asked}")
    for entry in source["classes"]:
        say(f"\nclass {entry['class']}  {{{entry['labels']}}}")
        say_table(
            ("counter", "series", "every", "first (UTC)", "last (UTC)", "history", "gaps"),
            (
                (
                    "cached in" if counter["metric"] == CACHED else counter["metric"],
                    counter["series"] or "none",
                    "-" if counter["resolution_s"] is None else format_duration(counter["resolution_s"]),
                    _minute(counter["first"]),
                    _minute(counter["last"]),
                    _rough(timedelta(seconds=counter["history_s"])),
                    _gaps(counter["gaps"]),
                )
                for counter in entry["counters"]
            ),
        )
        for counter in entry["counters"]:
            if counter["names"]:
                _say_folded(f"{counter['metric']} is {', then '.join(counter['names'])}")
        if entry["tokens_per_s"] is not None:
            _say_folded(f"last day: {said_rates(entry['tokens_per_s'])}")
        _say_signals(entry["signals"])
        for missing in entry["missing"]:
            _say_folded(f"missing: {missing}")


def _say_signals(signals: list[dict[str, Any]]) -> None:
    there = [signal for signal in signals if signal["names"]]
    if there:
        say()
        say_table(
            ("signal", "series", "now", "found as"),
            ((one["signal"], one["series"], _value(one), ", ".join(one["names"])) for one in there),
        )
    absent = [signal["signal"] for signal in signals if not signal["names"]]
    if absent:
        _say_folded(f"no live signal: {', '.join(absent)}")


def _say_folded(text: str) -> None:
    """A remark. On a terminal it fits the width; in a pipe it is one line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(text) + 2
    say(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False))


def _value(signal: dict[str, Any]) -> str:
    value, name = signal["value"], signal["signal"]
    if value is None:
        return "no traffic"
    if name.endswith("_usage"):
        return f"{value:.0%} at most"
    return f"p95 {value:.3g} s" if name.endswith("_s") else f"{value:,.0f}"


def _gaps(gaps: list[dict[str, Any]]) -> str:
    if not gaps:
        return "none"
    longest = max(gap["end"] - gap["start"] for gap in gaps)
    return f"{len(gaps)}, {_rough(longest)}" if len(gaps) == 1 else f"{len(gaps)}, to {_rough(longest)}"


def _rough(span: timedelta) -> str:
    """The two largest units of a time."""
    unit = timedelta(hours=1) if span >= timedelta(days=1) else timedelta(minutes=1)
    return format_duration(span // unit * unit) if span >= unit else "-"


def _minute(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def _clock(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
