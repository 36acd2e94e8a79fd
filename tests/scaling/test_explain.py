"""A reason recomputes to its number or says where it does not, and reads as a person would work it out."""

from __future__ import annotations

from datetime import timedelta

import pytest

from floorcast.columns import DEMAND, FORECASTS, empty
from floorcast.errors import FloorcastError
from floorcast.types import FloorWindow, Reason, Rung
from scaling.explain import explain
from scaling.floors import plan
from scaling.recompute import recompute

STEP = timedelta(minutes=5)
POOL = {
    "capacity": {"prefill_tokens_per_s": 48000, "decode_tokens_per_s": 2600, "target_utilization": 0.75},
    "startup": {"p90": "4m"},
    "margin": {"quantile": 0.95, "minimum": 0.1, "warm": 1},
    "bounds": {"min": 2, "max": 40},
}


@pytest.fixture
def planned(make_config, make_forecasts, now):
    """The pool and the windows of a plan of two classes; chat peaks at the third step."""

    def planned(*, peak=10_000.0, published=None, forecasts=None, **pool):
        config = make_config(classes={"agent": "main", "chat": "main"}, **(POOL | pool))
        if forecasts is None:
            forecasts = make_forecasts({"agent": [1e3] * 15, "chat": [100.0, 100.0, peak] + [100.0] * 12}, spread=1e3)
        made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=published)
        windows = [
            FloorWindow(
                start=row["window_start"],
                end=row["window_end"],
                min_replicas=row["min_replicas"],
                reason=Reason.model_validate_json(row["reason"]),
            )
            for row in made.floors.iter_rows(named=True)
        ]
        return config.pools["main"], windows

    return planned


def test_the_text_shows_every_step_of_the_arithmetic(planned, now):
    """11,900 / 1,950 = 6.10;  6.10 x 1.1 = 6.71, whole 7, one warm 8."""
    pool, windows = planned()
    text = explain(
        windows[0],
        pool_name="chat-70b",
        pool=pool,
        zone="Europe/Berlin",
        version=42,
        issued_at=now,
        cutoff=now,
        rung=Rung.FRESH,
    )
    changed = {"share_out": 0.5, "peak_out": 1.25, "tokens_out_per_s": 14312.5}
    apart = windows[0].model_copy(update={"reason": windows[0].reason.model_copy(update=changed)})
    assert explain(apart, pool_name="chat-70b", pool=pool).splitlines()[2:4] == [
        "  classes     agent 1,450/s (median 1,000), chat 10,450/s (median 10,000)",
        "  together    (11,000 + 0.5000 x (11,900 - 11,000)) x 1.2500 = 14,312/s: medians + 50 % of their spread, "
        "as they peak apart, times 1.25 for the busiest minute",
    ]
    assert text.splitlines() == [
        "chat-70b at 2026-11-30 08:50 UTC (09:50 Europe/Berlin): floor 8",
        "  needed by   09:00 UTC, when tokens out reach 11,900/s (quantile 0.95; median 11,000/s)",
        "  classes     agent 1,450/s, chat 10,450/s",
        "  together    1,450 + 10,450 = 11,900/s: added as if they peak together",
        "  capacity    2,600/s per replica x 0.75 = 1,950/s;  11,900 / 1,950 = 6.10;  tokens in would need 0.33",
        "  margins     minimum 10 %: 6.71 -> 7 replicas;  warm 1: 8",
        "  lead        startup p90 4m + publication 5m + apply 30s = 9m30s",
        "  bounds      2 to 40, not binding",
        "  forecast    version 42 issued 08:50 UTC from data up to 08:50 UTC;  agent: ets;  chat: ets",
        "  rung        fresh forecast",
    ]


def test_what_is_not_known_is_not_printed(planned):
    pool, windows = planned(margin={"quantile": 0.95, "minimum": 0})
    lines = explain(windows[0], pool_name="main", pool=pool).splitlines()
    assert lines[0] == "main at 2026-11-30 08:50 UTC: floor 7"
    assert "  margins     6.10 -> 7 replicas" in lines
    assert lines[-1] == "  forecast    agent: ets;  chat: ets"


def test_a_sum_shows_both_terms(planned):
    """(11,900 / 48,000 + 11,900 / 2,600) / 0.75 = (0.2479 + 4.5769) / 0.75 = 6.43."""
    pool, windows = planned(capacity=POOL["capacity"] | {"combine": "sum"})
    text = explain(windows[0], pool_name="main", pool=pool)
    assert "when tokens in reach 11,900/s and tokens out 11,900/s (quantile 0.95; median 22,000/s)" in text
    assert "agent 1,450/s in + 1,450/s out, chat 10,450/s in + 10,450/s out\n" in text
    assert "  together    1,450 + 10,450 = 11,900/s;  1,450 + 10,450 = 11,900/s: added as if" in text
    assert "(11,900 / 48,000 + 11,900 / 2,600) / 0.75 = 6.43" in text


def test_rules_that_moved_the_floor_are_named_with_before_and_after(planned):
    """After the peak, 11 falls by one in ten minutes, held first for a quarter of an hour."""
    shape = {"step_down": 1, "every": "10m", "dwell": "15m"}
    pool, windows = planned(shape=shape, bounds={"min": 5, "max": 7})
    texts = [explain(window, pool_name="main", pool=pool) for window in windows]
    assert "bounds      2" not in texts[0]
    assert "  bounds      5 to 7: 8 becomes 7, 1 replica short" in texts[0]
    assert "  bounds      5 to 7: 3 becomes 5" in texts[3]
    assert "  dwell       5 becomes 7, held for 15m" in texts[3]
    assert "  step down   5 becomes 6, down by at most 1 in 10m" in "\n".join(texts)


def test_a_fallback_says_which_class_is_not_known(planned, make_forecasts, make_schedule, now):
    forecasts = make_forecasts({"chat": [100.0] * 15})
    published = make_schedule([12] * 13, start=now - STEP)
    pool, windows = planned(forecasts=forecasts, fallback_replicas=9, published=published)
    text = explain(windows[0], pool_name="main", pool=pool, rung=Rung.FALLBACK)
    assert "needed by   08:50 UTC, when demand of agent is not known" in text
    assert "fallback    fallback_replicas 9, without margins" in text
    assert "published   9 becomes 12, as published before for this time" in text
    assert "agent: missing" in text
    assert recompute(windows[0].reason, pool) == 12


def test_a_fallback_that_is_not_set_is_called_the_upper_bound_that_it_is(planned, make_forecasts):
    pool, windows = planned(forecasts=make_forecasts({"chat": [100.0] * 15}))
    text = explain(windows[0], pool_name="main", pool=pool, rung=Rung.FALLBACK)
    assert "fallback    bounds.max 40, since fallback_replicas is not set, without margins" in text
    assert "bounds      2 to 40, 40 is bounds.max\n" in text


def test_one_class_shows_no_sum_but_its_busiest_minute(planned):
    """10,450 x 1.5 = 15,675."""
    pool, windows = planned()
    reason = windows[0].reason
    alone = {"classes": {"chat": reason.classes["chat"]}, "tokens_out_per_s": 10450.0}
    text, busy = (
        explain(windows[0].model_copy(update={"reason": each}), pool_name="main", pool=pool)
        for each in (
            reason.model_copy(update=alone),
            reason.model_copy(update={**alone, "peak_out": 1.5, "tokens_out_per_s": 15675.0}),
        )
    )
    assert "together" not in text
    assert "  together    10,450 x 1.5000 = 15,675/s: times 1.50 for the busiest minute\n" in busy


def test_one_replica_is_not_called_replicas(planned):
    pool, windows = planned(capacity=POOL["capacity"] | {"decode_tokens_per_s": 5200})
    text = explain(windows[-1], pool_name="main", pool=pool)
    assert "-> 1 replica;  warm 1: 2\n" in text
    assert "bounds      2 to 40, 2 is bounds.min\n" in text


def test_a_time_on_another_day_carries_its_date(planned, now):
    pool, windows = planned()
    text = explain(windows[0], pool_name="main", pool=pool, issued_at=now - timedelta(days=1))
    assert "issued 2026-11-29 08:50 UTC" in text


def _adjusted(reason, **changes):
    moves = [reason.adjustments[0].model_copy(update=changes), *reason.adjustments[1:]]
    return reason.model_copy(update={"adjustments": tuple(moves)})


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (lambda r: r.model_copy(update={"quantile": 0.9}), "quantile: the reason says 0.9, recomputed 0.95"),
        (lambda r: r.model_copy(update={"tokens_in_per_s": 1.0}), "tokens in per s, of all classes"),
        (lambda r: r.model_copy(update={"tokens_out_per_s": 1.0}), "tokens out per s, of all classes"),
        (lambda r: r.model_copy(update={"binding": "tokens_in"}), "binding term"),
        (lambda r: r.model_copy(update={"demand_tokens_per_s": 5.0}), "binding demand"),
        (lambda r: r.model_copy(update={"required_replicas": 6.0}), "required replicas: the reason says 6"),
        (lambda r: r.model_copy(update={"buffers": r.buffers[1:]}), "buffers"),
        (
            lambda r: r.model_copy(
                update={"buffers": (r.buffers[0].model_copy(update={"replicas": 7.0}), *r.buffers[1:])}
            ),
            "replicas after minimum_margin",
        ),
        (
            lambda r: r.model_copy(update={"buffers": (*r.buffers[:2], r.buffers[2].model_copy(update={"value": 2}))}),
            "value of warm",
        ),
        (lambda r: r.model_copy(update={"clamped": None}), "clamped by"),
        (lambda r: r.model_copy(update={"shortfall_replicas": 0}), "shortfall"),
        (lambda r: r.model_copy(update={"adjustments": ()}), "replicas after max_replicas"),
        (lambda r: r.model_copy(update={"adjustments": r.adjustments * 2}), "adjustments"),
        (lambda r: _adjusted(r, before=9), "replicas before max_replicas"),
        (lambda r: _adjusted(r, after=6), "replicas after max_replicas"),
        (lambda r: r.model_copy(update={"binding": "fallback_replicas"}), "fallback replicas"),
    ],
)
def test_a_reason_that_does_not_add_up_is_refused_at_the_number_that_disagrees(planned, alter, complaint):
    pool, windows = planned(bounds={"min": 2, "max": 7})
    reason = windows[0].reason
    assert recompute(reason, pool) == 7
    with pytest.raises(FloorcastError) as caught:
        recompute(alter(reason), pool)
    assert caught.value.what.startswith(complaint)
    assert "with what it was planned with" in caught.value.remedy


@pytest.mark.parametrize("after", [3, 41])
def test_a_rule_may_only_raise_and_within_bounds(planned, make_schedule, now, after):
    pool, windows = planned(
        forecasts=empty(FORECASTS), fallback_replicas=3, published=make_schedule([12] * 13, start=now - STEP)
    )
    with pytest.raises(FloorcastError, match="replicas after already_published"):
        recompute(_adjusted(windows[0].reason, after=after), pool)


def test_a_changed_capacity_is_noticed(planned):
    pool, windows = planned()
    faster = pool.capacity.model_copy(update={"decode_tokens_per_s": 5200.0})
    with pytest.raises(FloorcastError, match=r"required replicas: the reason says 6\.10"):
        recompute(windows[0].reason, pool.model_copy(update={"capacity": faster}))


def test_every_buffer_and_rule_is_shown_in_the_order_it_applied(planned, make_schedule, now):
    """11,900 / 1,950 = 6.10, and 10 % 6.71: 7. Of 3 zones one may go: 10.5, so 11; 10 % away: 12.2, so 13; one warm 14,
    in nodes of 4 16. 12 are allowed and 4 more."""
    margin = POOL["margin"] | {"zones": 3, "rollout_unavailable": 0.1}
    bounds = {"min": 4, "max": 12, "exceed_by": 4}
    shape = {"step_down": 0.1, "every": "10m", "dwell": "0s", "hysteresis": 0.5, "multiple_of": 4}
    pool, windows = planned(
        margin=margin, bounds=bounds, shape=shape, published=make_schedule([16] * 13, start=now - STEP)
    )
    assert [recompute(window.reason, pool) for window in windows] == [window.min_replicas for window in windows]
    first, later = (explain(windows[place], pool_name="main", pool=pool) for place in (0, 4))
    assert (
        "  margins     minimum 10 %: 6.71 -> 7 replicas;  zone loss, 1 of 3: 7 x 3 / 2 -> 11;  "
        "rollout 10 %: 11 / 0.9 -> 13;  warm 1: 14\n"
    ) in first
    assert "  multiples   14 becomes 16, in multiples of 4\n" in first
    assert "  bounds      4 to 12, exceeded by 4 of the 4 allowed\n" in first
    # 2,000 / 1,950 = 1.03, and so 2, 3, 4, 5 and 8, which is half of the 16 published.
    assert "  multiples   5 becomes 8, in multiples of 4\n" in later
    near = "lower by no more than 50 %"
    assert f"  hysteresis  8 becomes 16, as published before for this time: {near}\n" in later
