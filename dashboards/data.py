"""Everything the site shows, read from the store once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import polars as pl

from floorcast.columns import COSTS, FLOORS, empty
from floorcast.config import Config
from store.accuracy import read_accuracy
from store.connection import Store
from store.demand import read_demand
from store.drift import read_drift
from store.findings import read_findings
from store.fits import read_fits, read_scores
from store.floors import read_floors
from store.forecasts import read_forecast
from store.publications import PublicationRecord, latest_publication
from store.rejects import read_rejects


@dataclass(frozen=True)
class PoolChange:
    """What the last publication changed of a pool, over the time that it and the one before cover: `status` is `kept`,
    `added` or `removed`, `causes` are replica-hours, what moved most first."""

    pool: str
    status: str
    replica_hours: float
    causes: Mapping[str, float]


@dataclass(frozen=True)
class Changed:
    """What the last publication changed, against the one before. Pools in name order, those unchanged too."""

    version: int
    issued_at: datetime
    pools: tuple[PoolChange, ...]


@dataclass(frozen=True)
class SiteData:
    """What was known at `now`. Frames as in `floorcast.columns`; any of them may be empty.

    `floors` are those of the run that was published last, and `publication` is that publication, if there is one.
    `rejects` has one row per source and reason: source, reason, rows, file, row_number, raw (the first example).
    `costs` are those of the floors, `changed` says what the publication changed; `load` leaves both empty, since they
    are reckoned and not stored.
    """

    config: Config
    now: datetime
    demand: pl.DataFrame
    forecasts: pl.DataFrame
    fits: pl.DataFrame
    scores: pl.DataFrame
    drift: pl.DataFrame
    floors: pl.DataFrame
    publication: PublicationRecord | None
    accuracy: pl.DataFrame
    rejects: pl.DataFrame
    findings: pl.DataFrame
    costs: pl.DataFrame = field(default_factory=partial(empty, COSTS))
    changed: Changed | None = None


def load(store: Store, config: Config, *, now: datetime, days: int = 7) -> SiteData:
    """Read what was known at `now` (aware UTC), with the demand and the drift of the last `days` days."""
    publication = latest_publication(store, at=now)
    return SiteData(
        config=config,
        now=now,
        demand=read_demand(store, start=now - timedelta(days=days), end=now),
        forecasts=read_forecast(store, at=now),
        fits=read_fits(store, at=now),
        scores=read_scores(store, at=now),
        drift=read_drift(store, at=now).filter(pl.col("as_of") > now - timedelta(days=days)),
        floors=empty(FLOORS) if publication is None else read_floors(store, publication.run_id),
        publication=publication,
        accuracy=read_accuracy(store, at=now),
        rejects=count_rejects(read_rejects(store)),
        findings=read_findings(store, at=now),
    )


def count_rejects(rejects: pl.DataFrame) -> pl.DataFrame:
    """REJECTS by source and reason, most frequent first, with the first row of each as an example."""
    return (
        rejects.sort("source", "file", "row_number")
        .group_by("source", "reason", maintain_order=True)
        .agg(pl.len().alias("rows"), pl.col("file", "row_number", "raw").first())
        .sort("rows", "source", "reason", descending=[True, False, False])
    )
