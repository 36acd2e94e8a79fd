"""What rules in local time do to a pool's floors, as arrays."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from floorcast.columns import DEMAND, empty
from floorcast.pool import MOST_REPLICAS
from floorcast.types import FloorWindow, Reason
from scaling.explain import explain
from scaling.ladder import Grid, gather
from scaling.moves import Limits
from scaling.pool_demand import own_demand
from scaling.pool_floors import pool_floors
from scaling.reasons import reasons
from scaling.recompute import recompute

STEP = timedelta(minutes=5)


@pytest.fixture
def limited(make_config, make_forecasts, now):
    """The reasons of 12 windows that want 5 replicas each, under limits and `pool`."""

    def limited(minimums=(0,) * 12, ceilings=(MOST_REPLICAS,) * 12, *, before=(0,) * 13, **pool):
        config = make_config(**pool)
        grid = Grid(now, STEP, 14)
        figures = gather(
            config,
            grid,
            now=now,
            forecasts=make_forecasts({"chat": [50.0] * 14}),
            history=empty(DEMAND),
            fresh_for=3 * STEP,
        )
        made = pool_floors(
            config.pools["main"],
            own_demand(
                config.pools["main"],
                figures,
                [0],
                width=3,
                share=np.ones(2),
                peak=np.ones(2),
                hurried=np.ones(1, dtype=bool),
            ),
            grid,
            windows=12,
            width=3,
            before=np.array(before),
            idle=np.zeros(12, dtype=bool),
            limits=Limits(np.array(minimums), np.array(ceilings), ["office"] * 12, ["upgrade"] * 12),
        )
        texts = reasons(
            made,
            config.pools["main"],
            times=["2026-11-30T09:00:00Z"] * 15,
            lead={"lead_s": 600},
            labels=figures.labels,
            waiting={},
            cached={},
            uses=[],
            specs=[config.classes["chat"]],
        )
        found = [Reason.model_validate_json(text) for text in texts]
        assert [recompute(reason, config.pools["main"]) for reason in found] == made.floors.tolist()
        return config.pools["main"], made.floors.tolist(), found

    return limited


def test_a_scheduled_minimum_raises_what_is_less(limited):
    _, floors, found = limited([0, 8, 8, 100, 0, 3] + [0] * 6)
    assert floors == [5, 8, 8, 100, 5, 5] + [5] * 6
    assert [(move.rule, move.before, move.after, move.name) for move in found[3].adjustments] == [
        ("scheduled_minimum", 5, 100, "office")
    ]


def test_a_ceiling_comes_last_and_what_it_takes_of_the_need_is_short(limited):
    """A floor of 9 published before steps down by 1 in each window: 8, 7, 6, 5; need is 5."""
    shape = {"step_down": 1, "every": "5m", "dwell": "0s"}
    ceilings = [MOST_REPLICAS, 6, 4, 4] + [MOST_REPLICAS] * 8
    _, floors, found = limited(ceilings=ceilings, before=(9,) + (0,) * 12, shape=shape)
    assert floors == [8, 6, 4, 4] + [5] * 8
    assert [reason.shortfall_replicas for reason in found[:4]] == [0, 0, 1, 1]
    assert [reason.clamped for reason in found[:4]] == [None, "ceiling", "ceiling", "ceiling"]
    assert [(move.rule, move.before, move.after, move.name) for move in found[2].adjustments] == [
        ("step_down", 5, 6, None),
        ("ceiling", 6, 4, "upgrade"),
    ]


def test_the_text_names_the_rules_in_the_order_they_apply(limited, now):
    pool, floors, found = limited([8] * 12, [7] * 12)
    window = FloorWindow(start=now, end=now + STEP, min_replicas=floors[0], reason=found[0])
    lines = explain(window, pool_name="main", pool=pool).splitlines()
    assert lines[-5:-2] == [
        "  schedule    5 becomes 8, the minimum of office",
        "  bounds      1 to 100, not binding",
        "  ceiling     8 becomes 7, the most that upgrade allows",
    ]
