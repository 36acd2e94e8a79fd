"""Clocks that jump, worked by hand at ticks of 15 s: what differs by more than a minute is a jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pipelines.service.clock import SETTLED_S, Clock, advance, times

BEGIN = Clock(overlay_s=1000.0, wall_s=1000.0, mono_s=50.0)


def run(clock: Clock, *readings: tuple[float, float]) -> Clock:
    for wall_s, mono_s in readings:
        clock = advance(clock, wall_s=wall_s, mono_s=mono_s, tick_s=15)
    return clock


def test_both_going_on_is_no_jump() -> None:
    clock = run(BEGIN, (1015, 65), (1031, 80))
    assert (clock.overlay_s, clock.doubted) == (1030, False)


def test_a_jump_forward_moves_the_overlays_clock_by_what_really_passed() -> None:
    clock = run(BEGIN, (8215, 65))
    assert (clock.overlay_s, clock.jump_s) == (1015, 7200)


def test_a_jump_back_does_not_turn_the_overlays_clock_back() -> None:
    clock = run(BEGIN, (415, 65))
    assert (clock.overlay_s, clock.jump_s) == (1015, -600)


def test_a_clock_put_right_is_trusted_at_once() -> None:
    assert run(BEGIN, (8215, 65)).doubted
    assert not run(BEGIN, (8215, 65), (1030, 80)).doubted


def test_a_new_time_is_trusted_once_it_has_run_steadily() -> None:
    jumped = run(BEGIN, (8215, 65))
    steady = [(8215.0 + s, 65.0 + s) for s in range(15, int(SETTLED_S) + 1, 15)]
    assert run(jumped, *steady[:-1]).doubted
    assert not run(jumped, *steady).doubted


def test_drift_under_a_minute_is_none() -> None:
    """Slewed by 50 s at once, as NTP may step."""
    assert not run(BEGIN, (1065, 65)).doubted


def test_a_restart_after_a_pause_goes_on_from_there() -> None:
    clock = run(Clock(1000.0, 1000.0, None), (4600, 7))
    assert (clock.overlay_s, clock.doubted) == (4600, False)


def test_a_restart_before_the_time_of_the_last_process_is_a_jump_back() -> None:
    clock = run(Clock(1000.0, 1000.0, None), (400, 7))
    assert (clock.overlay_s, clock.jump_s) == (1000, -600)


def test_while_doubted_it_may_be_either_time() -> None:
    now = datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert times(run(BEGIN, (8215, 65)), now) == (now, now - timedelta(hours=2))
    assert times(BEGIN, now) == (now,)
