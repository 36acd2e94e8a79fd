"""Observed starts into the store, and from there into the configuration that stages work with."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from floorcast.errors import FloorcastError
from floorcast.source import PrometheusSource
from floorcast.units import format_duration
from pipelines.project import Project
from pipelines.sources.prometheus.startups import read_starts
from pipelines.stages.common import count
from scaling.startup import measured_startups
from store import startups as table
from store.connection import open_store

_AGAIN = timedelta(hours=1)
"""How much before the last sight of a pool's pods is read again."""


def read_startups(project: Project, now: datetime) -> tuple[dict[str, int], dict[str, str]]:
    """Read the starts of every pool that measures them, since they were last seen. By pool how many were new or had
    become ready; and why others could not be read, of which what is stored stands."""
    sources = {one.name: one for one in project.config.sources if isinstance(one, PrometheusSource)}
    read: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, pool in project.config.pools.items():
        if (measure := pool.startup.measure) is None:
            continue
        with open_store(project.store_path) as store:
            stored = table.read_startups(store, name)
        last = stored["seen_at"].max()
        oldest = now - measure.window
        since = max(last - _AGAIN, oldest) if isinstance(last, datetime) else oldest
        try:
            found = read_starts(sources[measure.source], name, pool.target, measure, since=since, now=now)
        except FloorcastError as error:
            failed[name] = error.what
            continue
        kept = _to_store(found, stored, since=since)
        with open_store(project.store_path) as store:
            table.upsert_startups(store, kept)
        read[name] = kept.height
    return read, failed


def _to_store(found: pl.DataFrame, stored: pl.DataFrame, *, since: datetime) -> pl.DataFrame:
    """What is new: pods whose start was seen whole, since they are from after `since` or were stored as not yet ready.
    One that was ready before stays as it is: readiness that comes back is no start."""
    key = ["pool", "pod", "created_at"]
    done = stored.filter(pl.col("ready_at").is_not_null())
    unready = stored.filter(pl.col("ready_at").is_null()).select(*key, was_stored=pl.lit(value=True))
    return (
        found.join(done, on=key, how="anti")
        .join(unready, on=key, how="left")
        .filter((pl.col("created_at") >= since) | pl.col("was_stored"))
        .drop("was_stored")
    )


def said_startups(project: Project) -> dict[str, str]:
    """By pool that measures its starts what they show: as `p90 4m30s, measured from 37 starts since 2026-11-16`."""
    said = {}
    for name, pool in project.config.pools.items():
        if pool.startup.measure is None:
            continue
        p90, found = format_duration(pool.startup.p90), pool.startup.measured
        said[name] = (
            f"p90 {p90} as configured, for want of {pool.startup.measure.at_least} starts"
            if found is None
            else f"p90 {p90}, measured from {count(found.starts, 'start')} since {found.since:%Y-%m-%d}"
        )
    return said


def with_measured_startups(project: Project, as_of: datetime) -> Project:
    """The project with what its pools' starts showed up to `as_of` in place of the configured p90."""
    if not any(pool.startup.measure for pool in project.config.pools.values()) or not project.store_path.exists():
        return project
    with open_store(project.store_path) as store:
        startups = table.read_startups(store)
    return replace(project, config=measured_startups(project.config, startups, now=as_of))
