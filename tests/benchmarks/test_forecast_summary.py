from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from benchmarks.forecast.judge import LEADS, OUTLOOK, Row, judge_series, why_left_out
from benchmarks.forecast.summary import calibration_errors, candidates, frame_of, summarise
from benchmarks.forecast.table import render
from floorcast.columns import Metric
from forecasting.series import FloatArray, Series

DAY = 144
OF_ALL = {"share_of_all_0.5": 0.5, "share_of_all_0.9": 0.87, "share_of_all_0.95": 0.96, "targets_of_all": 100}


def row(name: str, horizon: str, method: str, margin: str, pinball: float, *, rate: float = 10.0) -> Row:
    """Pinball at 0.9 as given and at 0.95 as much."""
    figures = {"wape": 0.1, "point_wape": 0.1, "mase": 0.1, "bias": 0.0, "seconds": 1.0, "targets": 100}
    shares = {f"share_{level}": level for level in (0.5, 0.9, 0.95)}
    losses = {f"pinball_{level}": pinball for level in (0.5, 0.9, 0.95)}
    key = {"workload_class": name, "metric": "tokens_in", "horizon": horizon, "method": method, "margin": margin}
    return {**key, "mean_rate": rate, **figures, **shares, **losses}


@pytest.fixture
def frame() -> pl.DataFrame:
    """Two classes, one of a hundred times the rate of the other; `other` is best by ratio, last value when added."""
    rows: list[Row] = []
    for name, rate, share in (("m/small", 10.0, 0.8), ("m/large", 1000.0, 0.1)):
        for horizon in (*LEADS, OUTLOOK):
            rows.append(
                row(name, horizon, "floorcast", "own", 0.05 * rate, rate=rate) | OF_ALL | {"daily_share": share}
            )
            for margin, last, other in (("add", 0.12, 0.2), ("ratio10", 0.12, 0.1), ("ratio1", 0.3, 0.4)):
                rows.append(row(name, horizon, "last_value", margin, last * rate, rate=rate))
                rows.append(row(name, horizon, "other", margin, other * rate, rate=rate))
    return frame_of(rows)


def test_the_headline_is_against_the_best_alternative_with_the_form_of_margin_that_makes_it_best(
    frame: pl.DataFrame,
) -> None:
    summary, detail = summarise(frame)
    assert (detail["best_alternative"], detail["margin_of_the_headline"]) == ("other", "ratio10")
    assert summary["pinball_ratio"] == pytest.approx(0.5)
    assert detail["pinball_ratio_by_margin"] == pytest.approx(
        {"add": 0.05 / 0.12, "ratio10": 0.5, "ratio1": 0.05 / 0.3}
    )


def test_the_outlook_is_against_its_own_best_alternative(frame: pl.DataFrame) -> None:
    """Day ahead 0.05 of floorcast against 0.1 of the best, then three times as much."""
    assert summarise(frame)[0]["day_ahead_ratio"] == pytest.approx(0.5)
    worse = pl.when(pl.col("horizon") == OUTLOOK, pl.col("method") == "floorcast").then(3.0).otherwise(1.0)
    summary, _ = summarise(frame.with_columns(pl.col("loss") * worse))
    assert (summary["day_ahead_ratio"], summary["pinball_ratio"]) == pytest.approx((1.5, 0.5))


def test_candidates_are_told_by_the_weight_they_had_where_they_could_be_used(frame: pl.DataFrame) -> None:
    """Two series: a has 0.2 and 0.6, b 0.8 and none, c 0.4 in the second only."""
    small, day = pl.col("workload_class") == "m/small", pl.col("horizon") == OUTLOOK
    given = frame.with_columns(
        pl.when(day).then(pl.when(small).then(first).otherwise(second)).alias(f"weight of outlook {name}")
        for name, first, second in (("a", 0.2, 0.6), ("b", 0.8, None), ("c", None, 0.4))
    )
    assert candidates(given).rows() == [
        ("outlook", "b", 0.8, 0.8, 1),
        ("outlook", "a", 0.4, 0.6, 1),
        ("outlook", "c", 0.4, 0.4, 0),
    ]


def test_classes_weigh_alike_and_the_worst_is_against_last_value(frame: pl.DataFrame) -> None:
    worse = pl.when(pl.col("workload_class") == "m/small", pl.col("method") == "floorcast").then(3.0).otherwise(1.0)
    summary, detail = summarise(frame.with_columns(pl.col("loss", "loss_tokens_per_s") * worse))
    assert summary["pinball_ratio"] == pytest.approx((0.15 + 0.05) / 0.2)
    assert summary["worst_class_ratio"] == pytest.approx(0.15 / 0.12)
    assert detail["classes"][0]["workload_class"] == "m/small"
    assert detail["pinball_ratio_tokens_per_s"] == pytest.approx((3 * 0.5 + 50) / 101)


def test_calibration_counts_classes_with_a_daily_cycle_only(frame: pl.DataFrame) -> None:
    off = pl.when(pl.col("workload_class") == "m/large").then(0.5).otherwise(pl.col("share_of_all_0.9"))
    lead = pl.col("horizon").is_in(list(LEADS))
    changed = frame.with_columns(pl.when(lead).then(off).otherwise(pl.lit(0.85)).alias("share_of_all_0.9"))
    summary, detail = summarise(changed)
    assert summary["day_ahead_calibration_error_max"] == pytest.approx(0.05)
    assert summary["calibration_error_max"] == pytest.approx(0.03)
    assert detail["calibration_error_max_of_all_classes"] == pytest.approx(0.4)
    assert calibration_errors(frame, LEADS).height == 2 * len(LEADS) * 2


def test_the_page_names_every_class_and_method(frame: pl.DataFrame) -> None:
    summary, detail = summarise(frame)
    page = render(frame, summary, detail | {"left_out": {"m/new tokens_in": "1.0 days are recorded"}})
    assert all(name in page for name in ("m/small", "m/large", "m/new", "last_value", "other", "0.500"))


def test_a_series_is_judged_with_every_method_on_the_same_targets() -> None:
    found = pl.DataFrame(judge_series(series_of(cycle(8)), evaluated=DAY), infer_schema_length=None)
    for horizon, targets in (("10m", DAY - 1), ("20m", DAY - 3)):
        rows = found.filter(pl.col("horizon") == horizon)
        assert rows.select("method", "margin").unique().height == 1 + 3 * 7
        assert set(rows["targets"]) == {targets}, "one missing step takes the targets that hold it"
    assert found.filter(pl.col("horizon") == OUTLOOK)["targets"].n_unique() == 1
    share = found.filter(pl.col("method") == "floorcast")["daily_share"]
    assert share.min() > 0.3


def test_too_short_or_idle_series_are_left_out_with_the_reason() -> None:
    assert "9.0 days" in str(why_left_out(series_of(cycle(9))))
    idle = cycle(11)
    idle[-4 * DAY :] = 0.0
    assert why_left_out(series_of(idle)) == "no traffic in the evaluated days"
    assert why_left_out(series_of(cycle(11))) is None


def cycle(days: int) -> FloatArray:
    """A noisy daily cycle with one missing step in the evaluated days."""
    rng = np.random.default_rng(9)
    times = np.arange(days * DAY)
    values = 100 * (1.5 + np.sin(2 * np.pi * times / DAY)) * np.exp(0.1 * rng.standard_normal(len(times)))
    values[-100] = np.nan
    return values


def series_of(values: FloatArray) -> Series:
    return Series("made/all", Metric.TOKENS_IN, datetime(2026, 11, 1, tzinfo=UTC), timedelta(minutes=10), values)
