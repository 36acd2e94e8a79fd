"""Frames that cross package boundaries."""

import polars as pl
import pytest

from floorcast.columns import DEMAND, QUANTILE_COLUMNS, conform, empty, quantile_column


def test_a_quantile_names_its_own_column() -> None:
    assert quantile_column(0.5) == "q50"
    assert quantile_column(0.975) == "q97_5"
    assert len(set(QUANTILE_COLUMNS)) == len(QUANTILE_COLUMNS)


def test_conform_orders_casts_and_drops_what_the_schema_does_not_name() -> None:
    given = empty(DEMAND).with_columns(extra=pl.lit(1)).select(reversed([*DEMAND, "extra"]))
    assert dict(conform(given, DEMAND).schema) == dict(DEMAND)


def test_conform_refuses_a_frame_that_lacks_a_column() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="tokens_out"):
        conform(empty(DEMAND).drop("tokens_out"), DEMAND)
