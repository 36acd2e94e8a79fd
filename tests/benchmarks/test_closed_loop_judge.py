"""What a run is held to, on readings made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from benchmarks.closed_loop.judge import Published, judge, words
from benchmarks.closed_loop.paths import Path, Sample, Seen, Span
from floorcast.types import FloorSchedule, FloorWindow, PoolSchedule, Reason, Rung

EPOCH = 1_800_000_000.0
SPEED, MINUTES = 20.0, 60
"""Three minutes of clocks: a simulated minute is 3 s, and a tick 0.75 s."""


def schedule(version: int, *floors: int) -> FloorSchedule:
    """Floors of a pool, each for 15 s from the epoch on."""
    start = datetime.fromtimestamp(EPOCH, UTC)
    reason = Reason(
        binding="tokens_out",
        needed_by=start,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=0,
        tokens_out_per_s=0,
        median_tokens_per_s=0,
        demand_tokens_per_s=0,
        required_replicas=0,
    )
    each = timedelta(seconds=15)
    windows = tuple(
        FloorWindow(start=start + k * each, end=start + (k + 1) * each, min_replicas=floor, reason=reason)
        for k, floor in enumerate(floors)
    )
    return FloorSchedule(
        version=version,
        mode="advisory",
        issued_at=start,
        valid_until=start + timedelta(minutes=5),
        content_hash=f"sha256:{'0' * 64}",
        pools={"chat": PoolSchedule(gate="untested", rung=Rung.FRESH, windows=windows)},
    )


def sample(second: float, *, desired: int = 10, floor: int = 8, **changes: object) -> Sample:
    decision = {"desired": desired, "floor": floor, "floor_source": "schedule", "alert": False, "lost": []}
    return replace(
        Sample(EPOCH + second, EPOCH + second, None, {"chat": floor}, {"chat": decision}, "valid", (), ()), **changes
    )


@pytest.fixture
def seen() -> Seen:
    """A calm run: a floor of 8 and a decision of 10 throughout, a fault from 30 s to 60 s that nothing comes of."""
    steps = MINUTES * 12
    path = Path(
        demand=np.full(steps, 6.0),
        ready=np.full(steps, 10.0),
        starting=np.zeros(steps),
        tokens=np.full(steps, 100.0),
        late=np.zeros(steps),
        rise_per_minute=12,
        fall_per_minute=3,
    )
    return Seen(
        epoch=EPOCH,
        speed=SPEED,
        minutes=MINUTES,
        paths={"chat": path},
        samples=tuple(sample(0.75 * k) for k in range(240)),
        spans=(Span("frozen", "something frozen", EPOCH + 30, EPOCH + 60),),
        publications=((EPOCH - 10, schedule(1, *[8] * 12)),),
        cycles=({"version": 1},),
        exit_code=0,
    )


def changed(seen: Seen, second: float, until: float, **changes: object) -> Seen:
    """The readings from one second to before another made anew."""
    inside = [second <= one.at - EPOCH < until for one in seen.samples]
    samples = [
        sample(one.at - EPOCH, **changes) if is_in else one for one, is_in in zip(seen.samples, inside, strict=True)
    ]
    return replace(seen, samples=tuple(samples))


def test_a_calm_run_fails_nothing(seen: Seen) -> None:
    fault, whole = judge(seen)
    assert (fault.failures, whole.failures) == ((), ())
    assert (fault.begin_min, fault.end_min, whole.end_min) == (10.0, 20.0, 60.0)
    assert (fault.over_published, fault.over_floor, fault.rise, fault.fall) == (0, 2, 0, 0)


def test_a_single_reading_of_a_floor_under_what_was_published_fails(seen: Seen) -> None:
    fault, whole = judge(changed(seen, 45, 45.75, floor=7))
    assert fault.failures == whole.failures == ("a floor was 1 under what was published",)


def test_a_decision_under_its_floor_fails(seen: Seen) -> None:
    fault, _ = judge(changed(seen, 45, 45.75, desired=7))
    assert "a decision was 1 under its floor" in fault.failures


def test_a_new_publication_may_be_read_three_ticks_late_and_no_later(seen: Seen) -> None:
    """A floor of 9 published at 50 s: readings of 8 until 52.25 s are late, one at 53.25 s is wrong."""
    risen = replace(seen, publications=(*seen.publications, (EPOCH + 50, schedule(2, *[9] * 12))))
    assert judge(changed(risen, 51.9, 200, floor=9))[0].failures == ()
    assert judge(changed(risen, 53.9, 200, floor=9))[0].failures == ("a floor was 1 under what was published",)


def test_a_floor_that_falls_while_it_is_read_is_not_wrong(seen: Seen) -> None:
    """At 45 s the floor falls from 8 to 7. Asked for at 44.99 s and answered at 45.2 s with 7, it is right; answered
    before 45 s it is wrong."""
    falling = replace(seen, publications=((EPOCH - 10, schedule(1, 8, 8, 8, *[7] * 9)),))
    for until, failed in ((45.2, False), (44.995, True)):
        samples = [one for one in changed(falling, 45, 200, floor=7).samples if not 44 <= one.at - EPOCH < 45]
        samples.append(replace(sample(44.99, floor=7), until=EPOCH + until))
        fault, _ = judge(replace(falling, samples=tuple(sorted(samples, key=lambda one: one.at))))
        assert bool(fault.failures) == failed


def test_what_was_published_is_due_by_the_newest_of_then(seen: Seen) -> None:
    published = Published(((EPOCH - 10, schedule(1, 5, 6)), (EPOCH + 5, schedule(2, 7))))
    assert [published.due("chat", EPOCH + second) for second in (-11, 0, 4.9, 5, 14.9, 15)] == [None, 5, 5, 7, 7, None]
    assert published.due("other", EPOCH) is None


def test_a_fall_beyond_the_pace_within_a_minute_of_the_end_fails(seen: Seen) -> None:
    """Three in a minute are allowed: from 12 to 9 over half a minute passes, to 8 does not."""
    for lowest, failures in ((9, ()), (8, ("a decision fell by 4 within a minute, 3 are allowed",))):
        high = changed(seen, 0, 70, desired=12)
        fault, _ = judge(changed(high, 70, 200, desired=lowest))
        assert fault.failures == failures


def test_what_a_floor_asks_for_is_no_rise(seen: Seen) -> None:
    """A floor of 30 takes a decision of 10 there at once; to 43 would be a rise of 13 beyond it."""
    published = ((EPOCH - 10, schedule(1, 8, 8, 8, 8, *[30] * 8)),)
    for highest, rise in ((30, 0), (43, 13)):
        risen = changed(replace(seen, publications=published), 60, 200, desired=highest, floor=30)
        fault, _ = judge(risen)
        assert fault.rise == rise
        assert bool(fault.failures) == (rise > 12)


def test_what_must_be_said_and_was_not_fails(seen: Seen) -> None:
    expecting = replace(seen, spans=(replace(seen.spans[0], expects=("stays in force",)),))
    assert judge(expecting)[0].failures == ("the service did not say `stays in force`",)
    said = changed(expecting, 40, 45, told=("publication: not JSON; version 1 stays in force",))
    assert judge(said)[0].failures == ()


def test_tokens_late_are_counted_until_a_quarter_of_an_hour_after(seen: Seen) -> None:
    """From minute 10 to 35 of the run 300 steps of 100 tokens come; 3 are late, and one after them does not count."""
    late = seen.paths["chat"].late.copy()
    late[[120, 300, 419, 420]] = 100.0
    fault, whole = judge(replace(seen, paths={"chat": replace(seen.paths["chat"], late=late)}))
    assert (fault.tokens_late, fault.share_late) == (300.0, pytest.approx(0.01))
    assert whole.tokens_late == 400.0


def test_time_without_an_answer_is_told(seen: Seen) -> None:
    gone = changed(seen, 30, 33, fault="ConnectError", decisions={}, floors={}, validity="")
    fault, _ = judge(gone)
    assert fault.unanswered_s == 3.0
    assert fault.said == "no answer"
    nothing = changed(seen, 0, 200, fault="ConnectError", decisions={}, floors={}, validity="")
    assert judge(nothing)[0].failures == ("the service never answered",)


def test_words_tell_each_thing_once_in_the_order_it_came() -> None:
    lost = {"desired": 10, "floor": 8, "floor_source": "held", "alert": True, "lost": ["tokens_in_per_s"]}
    readings = [
        sample(0, told=("a",)),
        sample(1, told=("b", "a"), validity="expired"),
        sample(2, decisions={"chat": lost}),
    ]
    assert words(iter(readings)) == "a; publication expired; b; floors held; signals lost; alert: no signal"


def test_a_service_that_does_not_end_cleanly_fails_the_run(seen: Seen) -> None:
    fault, whole = judge(replace(seen, exit_code=None))
    assert (fault.failures, whole.failures) == ((), ("the service ended with None when told to",))


def test_a_run_without_faults_has_the_row_of_the_whole_run_alone(seen: Seen) -> None:
    [whole] = judge(replace(seen, spans=()))
    assert (whole.failures, whole.share_late_calm) == ((), None)


def test_a_calm_run_is_compared_over_the_same_minutes(seen: Seen) -> None:
    """Of 25 minutes of 1,200 tokens each from minute 10 on, one minute's were late."""
    calm = {"chat": {"tokens": [1200.0] * 60, "late": [0.0] * 20 + [1200.0] + [0.0] * 39}}
    fault, whole = judge(seen, calm)
    assert (fault.share_late_calm, whole.share_late_calm) == pytest.approx((1 / 25, 1 / 60))
