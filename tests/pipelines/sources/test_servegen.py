"""ServeGen's pairs of files, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from floorcast.errors import ConfigError, DataError

Run = Callable[..., Any]
START = datetime(2026, 11, 1, tzinfo=UTC)
TEN = timedelta(minutes=10)
KEYS = {"format": "servegen", "path": "r.parquet", "lengths": "l.parquet", "start": START, "step": TEN}
SIX_HOURS = 21600


def write(folder: Path, rates: list[tuple[Any, ...]], lengths: list[tuple[Any, ...]]) -> None:
    """Rates as (client, window, rate, cv); lengths as (client, window, in, out)."""
    names = ["client", "window_start_s"]
    pl.DataFrame(rates, schema=[*names, "requests_per_s", "interarrival_cv"], orient="row").write_parquet(
        folder / "r.parquet"
    )
    pl.DataFrame(lengths, schema=[*names, "mean_input_tokens", "mean_output_tokens"], orient="row").write_parquet(
        folder / "l.parquet"
    )


def test_lengths_are_interpolated_between_centres_and_constant_outside(tmp_path: Path, run: Run) -> None:
    # centres of the lengths at 3 h and 15 h (the 6-hour window between has none): 100 and 220 tokens
    windows = [0, 3 * 3600, 9 * 3600, 20 * 3600]
    write(
        tmp_path,
        [(1, window, 2.0, 0.0) for window in windows],
        [(1, 0, 100.0, 10.0), (1, 2 * SIX_HOURS, 220.0, 22.0)],
    )
    result = run(**KEYS, clients={"code": [1]})
    means = [value / 1200 for value in result.demand["tokens_in"]]
    # a rate's window is centred 5 minutes after its start
    assert means == pytest.approx([100, 100 + 120 * (5 / 720), 100 + 120 * (365 / 720), 220])
    assert result.demand["requests"].to_list() == [1200.0] * 4
    assert result.demand["step_start"].to_list() == [START + timedelta(seconds=window) for window in windows]
    assert result.incomplete_step is None


def test_a_client_without_lengths_takes_the_models_rate_weighted_mean(tmp_path: Path, run: Run) -> None:
    rates = [(1, 0, 3.0, 0.0), (2, 0, 1.0, 0.0), (3, 0, 5.0, 0.0)]
    write(tmp_path, rates, [(1, 0, 100.0, 10.0), (2, 0, 200.0, 30.0)])
    demand = run(**KEYS, clients={"code": [3]}).demand
    assert demand.select("workload_class", "tokens_in", "tokens_out").rows() == [
        ("code", pytest.approx(5 * 600 * 125), pytest.approx(5 * 600 * 15))
    ]


def test_peak_adds_variances_and_is_bounded_by_the_whole_window(tmp_path: Path, run: Run) -> None:
    rates = [(1, 0, 2.0, 1.5), (2, 0, 1.0, 0.5), (1, 600, 0.01, 500.0), (2, 600, 0.0, 0.0)]
    write(tmp_path, rates, [(1, 0, 100.0, 10.0), (2, 0, 50.0, 20.0)])
    demand = run(**KEYS, clients={"code": "*"}).demand
    sd = math.sqrt(1.5**2 * 60 * 2 * 100**2 + 0.5**2 * 60 * 1 * 50**2)
    assert demand["peak_tokens_in_per_s"].to_list() == pytest.approx([250 + 1.54 * sd / 60, 10 * 0.01 * 100])


def test_a_missing_window_is_missing_and_a_zero_is_zero(tmp_path: Path, run: Run) -> None:
    rates = [(1, 0, 1.0, 1.0), (2, 0, 0.0, 0.0), (1, 600, 1.0, 1.0), (1, 1800, 0.0, 0.0), (2, 1800, 0.0, 0.0)]
    write(tmp_path, rates, [(1, 0, 10.0, 1.0), (2, 0, 10.0, 1.0)])
    demand = run(**KEYS, clients={"code": "*"}).demand
    assert demand.select("step_start", "tokens_in", "observed_fraction").rows() == [
        (START, 6000.0, 1.0),
        (START + TEN, 6000.0, 0.5),
        (START + 3 * TEN, 0.0, 1.0),
    ]


def test_longer_steps_hold_several_windows_and_the_unfinished_one_is_left_out(tmp_path: Path, run: Run) -> None:
    write(tmp_path, [(1, 600 * i, float(i), 0.0) for i in range(5)], [(1, 0, 10.0, 1.0)])
    result = run(**KEYS | {"step": 3 * TEN}, clients={"code": "*"})
    assert result.demand.select("tokens_in", "peak_tokens_in_per_s", "observed_fraction").rows() == [
        (18000.0, 20.0, 1.0)
    ]
    assert result.incomplete_step == START + 3 * TEN


def test_until_hides_windows_that_are_not_over(tmp_path: Path, run: Run) -> None:
    rates = [(1, 600 * i, 1.0, 0.0) for i in range(72)]
    write(tmp_path, rates, [(1, 0, 10.0, 1.0), (1, SIX_HOURS, 90.0, 1.0)])
    result = run(**KEYS, clients={"code": "*"}, until=START + timedelta(hours=11, minutes=59))
    assert result.demand.height == 71
    assert result.demand["tokens_in"].unique().to_list() == [6000.0]
    assert result.rows_past_until == 2
    with pytest.raises(DataError, match="no token lengths are known"):
        run(**KEYS, clients={"code": "*"}, until=START + timedelta(hours=3))


def test_bad_rows_are_rejected_by_reason(tmp_path: Path, run: Run) -> None:
    rates = [(1, 0, 1.0, 1.0), (1, 0, 9.0, 1.0), (1, 600, None, 1.0), (1, 1200, -1.0, 1.0), (1, 1801, 1.0, 1.0)]
    lengths = [
        (1, 0, 10.0, 1.0),
        (1, SIX_HOURS, None, 1.0),
        (1, 2 * SIX_HOURS, -1.0, 1.0),
        (1, 3 * SIX_HOURS, 1e9, 1.0),
    ]
    write(tmp_path, rates, lengths)
    result = run(**KEYS, clients={"code": "*"}, max_reject_share=1)
    assert result.rejected == {
        "duplicate": 1, "missing_rate": 2, "unparsable_time": 1,
        "missing_tokens": 1, "negative_tokens": 1, "absurd_tokens": 1,
    }  # fmt: skip
    assert (result.rows_read, result.rows_used) == (9, 2)
    assert result.demand["tokens_in"].to_list() == [6000.0]


@pytest.mark.parametrize(
    ("keys", "error", "match"),
    [
        ({"step": timedelta(minutes=5), "clients": {"code": "*"}}, ConfigError, "10-minute windows"),
        ({"step": timedelta(minutes=15), "clients": {"code": "*"}}, ConfigError, "10-minute windows"),
        ({"start": START + timedelta(minutes=1), "clients": {"code": "*"}}, ConfigError, "straddle"),
        ({"clients": {"code": [1], "chat": [1, 2]}}, ConfigError, "clients 1 are given twice"),
        ({"clients": {"code": "*", "chat": "*"}}, ConfigError, "given to code, chat"),
        ({"clients": {"coed": "*"}}, ConfigError, "did you mean code"),
        ({"clients": {"code": [7, 99]}}, DataError, "no rows of clients 7, 99; it has 1 to 1"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, run: Run, keys: Any, error: type[Exception], match: str) -> None:
    write(tmp_path, [(1, 0, 1.0, 1.0)], [(1, 0, 10.0, 1.0)])
    with pytest.raises(error, match=match):
        run(**KEYS | keys)
