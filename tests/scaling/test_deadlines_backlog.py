"""What waits from before now: what came within the wait, less what the floors in force had room for."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest

from floorcast.columns import DEMAND, empty
from floorcast.config import Config
from floorcast.types import Reason
from scaling.floors import plan

STEP = timedelta(minutes=5)
NO_HISTORY = empty(DEMAND)
CLASSES = {"chat": "main", "batch": "main"}
SHORT = {"p90": "0s", "apply_delay": "0s"}


def test_what_arrived_within_the_wait_is_still_to_be_done(make_config, make_forecasts, make_history, now):
    """60 came in each of the two steps before now, and no floor is known to have served them: 60 are due by the end of
    the first step and 120 by that of the second, while nothing more comes."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"})
    came = {now - (1 + i) * STEP: 60.0 if i < 2 else 0.0 for i in range(12)}
    given = {"forecasts": make_forecasts({"batch": [0.0] * 14}), "history": make_history({"batch": came})}
    made = plan(config, now=now, published=None, **given)
    assert made.floors["min_replicas"].to_list()[:3] == [6, 6, 1]
    assert Reason.model_validate_json(made.floors["reason"][0]).classes["batch"].deadline.arriving_out_per_s == 0


@pytest.mark.parametrize(
    ("floors", "first"),
    [
        ([6, 6], [1, 1, 1]),  # all of it was done as it came
        ([0, 6], [3, 3, 1]),  # 60 of the 120 are left, all of the last step's: due in two steps
        ([0, 0], [6, 6, 1]),
        ([None, None], [6, 6, 1]),  # no floor was in force: nothing is known to be done
    ],
)
def test_what_the_floors_in_force_had_room_for_is_done(make_config, make_forecasts, make_history, now, floors, first):
    """60 came in each of the two steps before now. Replicas of 10 tokens/s; the floors of those steps, oldest first."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"})
    came = {now - (1 + i) * STEP: 60.0 if i < 2 else 0.0 for i in range(12)}
    rows = [
        {"pool": "main", "window_start": now - (2 - i) * STEP, "min_replicas": floor}
        for i, floor in enumerate(floors)
        if floor is not None
    ]
    in_force = pl.DataFrame(
        rows, schema={"pool": pl.String, "window_start": DEMAND["step_start"], "min_replicas": pl.Int64}
    )
    made = plan(
        config,
        now=now,
        forecasts=make_forecasts({"batch": [0.0] * 14}),
        history=make_history({"batch": came}),
        published=None,
        in_force=in_force,
    )
    assert made.floors["min_replicas"].to_list()[:3] == first


def test_room_is_what_interactive_classes_left_and_none_where_they_were_not_observed(
    make_config, make_forecasts, make_history, now
):
    """A floor of 6 served chat's 40 and 20 of batch's 60; where chat was not seen, it may have served none of them."""
    config = make_config(classes=CLASSES, startup=SHORT, waits={"batch": "10m"})
    batch = {now - (1 + i) * STEP: 60.0 if i == 0 else 0.0 for i in range(12)}
    chat = {now - (1 + i) * STEP: 40.0 for i in range(12)}
    in_force = pl.DataFrame({"pool": ["main"], "window_start": [now - STEP], "min_replicas": [6]}).cast(
        {"window_start": DEMAND["step_start"]}
    )
    given = {"forecasts": make_forecasts({"batch": [0.0] * 14, "chat": [0.0] * 14}), "published": None}
    for rows, floor in (({"batch": batch, "chat": chat}, 4), ({"batch": batch}, 6)):
        made = plan(config, now=now, history=make_history(rows), in_force=in_force, **given)
        assert made.floors["min_replicas"][0] == floor


@pytest.mark.parametrize(
    ("prefill", "decode", "first"),
    [
        (6, 3, [0, 0, 0]),  # 60 in and 30 out in each step: both did it as it came
        (9, 0, [6, 6, 0]),  # prefilled or not, nothing was decoded
        (0, 9, [6, 6, 0]),
        (100, 2, [2, 2, 0]),  # two thirds were decoded: 40 in and 20 out are left
        (4, 100, [2, 2, 0]),
        (4, None, [6, 6, 0]),
    ],
)
def test_of_a_prefill_and_a_decode_pool_the_one_with_less_room_decides(
    make_config, make_forecasts, make_history, now, prefill, decode, first
):
    """60 tokens in and 30 out a second came in each of the two steps before now; replicas of 10 tokens/s. What is left
    is of the last step and the one before alike, due in this step and the next."""
    base = make_config(startup=SHORT).pools["main"].model_dump()
    config = Config.model_validate(
        {
            "horizon": "1h",
            "pools": {role: base | {"role": role} for role in ("prefill", "decode")},
            "classes": {"batch": {"pools": ["prefill", "decode"], "slo": {"max_wait": "15m"}}},
        }
    )
    history = make_history({"batch": {now - (1 + i) * STEP: 60.0 if i < 2 else 0.0 for i in range(12)}})
    floors = {"prefill": prefill, "decode": decode}
    in_force = pl.DataFrame(
        [
            {"pool": pool, "window_start": now - at * STEP, "min_replicas": floor}
            for pool, floor in floors.items()
            for at in (1, 2)
            if floor is not None
        ],
        schema={"pool": pl.String, "window_start": DEMAND["step_start"], "min_replicas": pl.Int64},
    )
    made = plan(
        config,
        now=now,
        forecasts=make_forecasts({"batch": [0.0] * 14}),
        history=history.with_columns(tokens_out=pl.col("tokens_out") / 2),
        published=None,
        in_force=in_force,
    )
    done = made.floors.filter(pool="prefill")["required_replicas"].to_list()
    assert done[:3] == pytest.approx(first)


def test_past_steps_not_observed_count_as_the_greatest_that_were(make_config, make_forecasts, make_history, now):
    """The last two steps are missing, before them 50 came once: 50 are due in each of the next two. Without any history
    it is the 20 that are forecast."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"})
    forecasts = make_forecasts({"batch": [20.0] + [0.0] * 13})
    past = make_history({"batch": {now - (3 + i) * STEP: 50.0 if i == 2 else 0.0 for i in range(10)}})
    made = plan(config, now=now, forecasts=forecasts, history=past, published=None)
    assert made.floors["required_replicas"].to_list()[:3] == [5, 5, 2]
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert made.floors["required_replicas"].to_list()[:3] == [2, 2, 2]


def test_what_waits_is_done_after_first_steps_that_are_not_known(make_config, make_forecasts, make_history, now):
    """20 minutes are three steps of waiting, and 60 came in each of the three before now: due 60 by the end of each of
    the next three steps. chat is not known in the first, so the 60 due in it are due in the second as well: 120, 60.
    Where three steps or more are not known, all 180 are due in the next."""
    config = make_config(classes=CLASSES, startup=SHORT, waits={"batch": "20m"}, fallback_replicas=2)
    history = make_history({"batch": {now - (1 + i) * STEP: 60.0 if i < 3 else 0.0 for i in range(20)}})
    for unknown, required in ((0, [6, 6, 6, 0, 0]), (1, [12, 6, 0, 0]), (2, [18, 0, 0]), (5, [18, 0, 0])):
        forecasts = make_forecasts({"batch": [0.0] * 14, "chat": [None] * unknown + [0.0] * (14 - unknown)})
        made = plan(config, now=now, forecasts=forecasts, history=history, published=None)
        # A window covers its own step and the next.
        expected = [max(pair) for pair in pairwise(required)]
        assert made.floors["required_replicas"].to_list()[unknown:][: len(expected)] == expected


def test_without_history_what_waits_is_what_the_first_known_step_brings(make_config, make_forecasts, make_history, now):
    """batch is first known in the second step, 30 of it; as much waits from each of the two steps before now. The
    first two of the three that are due are due at once: 60 and, beside them, 30 a step from then on."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"}, fallback_replicas=2)
    forecasts = make_forecasts({"batch": [None] + [30.0] * 13})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert made.floors["required_replicas"].to_list()[1] == 6
