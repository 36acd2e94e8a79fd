"""Fitted models and the backtest scores they were chosen by."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import FITS, SCORES
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_UNIT = ("workload_class", "metric", "cutoff")
_FITS = Table("fits", FITS, key=(*_UNIT, "horizon"), unit=_UNIT)
_SCORES = Table(
    "scores",
    SCORES,
    key=(*_UNIT, "horizon", "model"),
    unit=_UNIT,
    nullable=frozenset({"pinball", "wape", "bias", "seconds", "error"}),
    signed=frozenset({"bias"}),
)


def write_fits(store: Store, run_id: str, fits: pl.DataFrame, scores: pl.DataFrame) -> None:
    """Store FITS and SCORES in place of those of the same class, metric and cutoff, in one transaction."""
    with store.transaction():
        replace_rows(store, _FITS, fits, {"run_id": run_id})
        replace_rows(store, _SCORES, scores, {"run_id": run_id})


def read_fits(store: Store, *, at: datetime) -> pl.DataFrame:
    """FITS of the latest cutoff at or before `at`, per class and metric."""
    return read_rows(store, _FITS, query("latest_cutoff"), {"at": at})


def read_scores(store: Store, *, at: datetime) -> pl.DataFrame:
    """SCORES of the latest cutoff at or before `at`, per class and metric."""
    return read_rows(store, _SCORES, query("latest_cutoff"), {"at": at})
