"""All policies in one replay of a pool with a daily shape."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from floorcast.errors import DataError
from scaling.replay.compare import compare
from scaling.replay.conditions import conditions_of

STEPS, STEP_S = 960, 30.0


@pytest.fixture(scope="module")
def compared(make_pool, make_stream, make_traffic):
    """Two days and a third, of which the last eight hours are replayed: up from 4 to 16 replicas' worth by the hour."""
    pool = make_pool(
        capacity={"prefill_tokens_per_s": 1, "decode_tokens_per_s": 1, "target_utilization": 0.8},
        startup={"p90": "10m"},
        bounds={"min": 1, "max": 60},
    )
    at_s = np.arange(STEPS * 7) * STEP_S
    load = 10 - 6 * np.cos(2 * np.pi * at_s / 86400)
    required = load.reshape(-1, 10).mean(axis=1) / 0.8
    day = make_traffic(make_stream(load[-STEPS:] * STEP_S, requests=load[-STEPS:]), step_s=STEP_S)
    given = {"pool": pool, "conditions": conditions_of(pool), "required": required, "window_s": 300.0}
    floors = {"floorcast": np.ceil(required[-96:]).astype(np.int64)}
    return compare(day, **given, floors=floors, margins=(0.0, 0.3)), day, given


def test_every_policy_is_there_at_every_margin(compared):
    figures = compared[0].figures
    counts = dict(figures.group_by("policy").len().iter_rows())
    assert counts == {
        "static_peak": 1,
        "static_mean": 1,
        **dict.fromkeys(("hybrid", "composite", "target_tracking", "step", "threshold", "lookahead"), 2),
        **dict.fromkeys(("last_value", "seasonal_naive", "managed", "floorcast"), 2),
    }
    assert figures.filter("on_front").height > 0


def test_a_higher_margin_costs_more_and_nobody_beats_the_clairvoyant_at_the_promise(compared):
    found = compared[0]
    wide = found.figures.drop_nulls("margin").pivot("margin", index="policy", values="gpu_hours")
    tracked = wide.filter(pl.col("policy").is_in(["target_tracking", "seasonal_naive", "floorcast", "last_value"]))
    assert (tracked["0.3"] > tracked["0.0"]).all()
    promised = found.at_promise(0.99)
    assert (promised.filter("kept")["over_clairvoyant"] >= 1).all()
    assert promised["kept"].to_list() == sorted(promised["kept"].to_list(), reverse=True)
    assert promised["policy"].n_unique() == promised.height == 12


def test_static_peak_keeps_the_promise_and_static_mean_does_not(compared):
    kept = dict(compared[0].at_promise(0.99).select("policy", "kept").iter_rows())
    assert kept["static_peak"]
    assert not kept["static_mean"]


def test_a_promise_that_no_path_can_keep_is_said(compared, make_pool):
    _, day, given = compared
    small = given["pool"].model_copy(update={"bounds": make_pool(bounds={"min": 1, "max": 3}).bounds})
    found = compare(day, **given | {"pool": small}, floors={}, margins=(0.0,))
    assert found.best is None
    assert "with 3 replicas" in found.impossible
    assert found.at_promise(0.99)["over_clairvoyant"].null_count() == found.at_promise(0.99).height


def test_demand_shorter_than_the_traffic_is_refused(compared):
    _, day, given = compared
    with pytest.raises(DataError, match="demand of 10 windows for 96"):
        compare(day, **given | {"required": np.ones(10)}, floors={})
