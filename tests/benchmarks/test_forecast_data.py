import numpy as np
import pytest

from benchmarks.forecast.data import Pair, daily_share, read_pair
from floorcast.columns import Metric
from floorcast.errors import DataError


def test_classes_add_up_to_all(pair: Pair) -> None:
    by_name = {(one.workload_class.removeprefix("made/"), one.metric): one.values for one in read_pair(pair)}
    names = {name for name, _ in by_name}
    assert {"client-3", "client-0", "client-1", "client-2", "next-8", "rest", "all"} == names
    for metric in Metric:
        total = sum(by_name[name, metric] for name in names - {"all"})
        np.testing.assert_allclose(total, by_name["all", metric], rtol=1e-9)


def test_a_window_in_which_every_client_reads_zero_is_missing_in_all(pair: Pair) -> None:
    for one in read_pair(pair):
        assert np.flatnonzero(np.isnan(one.values)).tolist() == [50, 51]


def test_a_file_that_is_not_there_is_named(pair: Pair) -> None:
    with pytest.raises(DataError, match=r"nowhere\.parquet"):
        read_pair(Pair(pair.rates.with_name("nowhere.parquet"), pair.lengths))


def test_the_daily_share_is_one_for_a_pure_cycle_and_small_for_noise() -> None:
    cycle = np.tile(np.sin(2 * np.pi * np.arange(144) / 144), 5)
    assert daily_share(cycle, day=144) == pytest.approx(1.0)
    noise = np.random.default_rng(1).standard_normal(14 * 144)
    assert 0.0 < daily_share(noise, day=144) < 0.15
    assert daily_share(np.full(720, 3.0), day=144) == 0.0
