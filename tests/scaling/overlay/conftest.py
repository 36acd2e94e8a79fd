"""Small pools for the tests of the overlay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from floorcast.pool import Pool
from scaling.overlay.decide import Decision, decide
from scaling.overlay.settings import Settings, settings_of
from scaling.overlay.signals import snapshot
from scaling.overlay.state import begin


def _pool(*, bounds: tuple[int, int] = (1, 100), role: str = "unified", **overlay: Any) -> Pool:
    """Replicas of 1,000 tokens in and 100 tokens out per second, to be used to 70 %."""
    return Pool.model_validate(
        {
            "gpu": {"type": "H100"},
            "role": role,
            "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100, "target_utilization": 0.7},
            "startup": {"p90": "4m"},
            "bounds": {"min": bounds[0], "max": bounds[1]},
            "scale_to_zero": None if bounds[0] else {"wake_up": "4m", "below_tokens_per_s": 1},
            "overlay": overlay,
        }
    )


@pytest.fixture
def pool() -> Callable[..., Pool]:
    return _pool


@pytest.fixture
def settings() -> Callable[..., Settings]:
    """Of one lane: a pool with these `overlay` keys."""
    return lambda **overlay: settings_of([_pool(**overlay)])


@pytest.fixture
def play() -> Callable[..., list[Decision]]:
    """Decisions of one lane, tick by tick: `ticks` are (now_s, signals by name)."""
    return _play


def _play(lane: Settings, ticks: list[tuple[float, dict[str, Any]]], *, begun_s: float = 0.0) -> list[Decision]:
    state, made = begin(1, begun_s), []
    for now_s, values in ticks:
        decision, state = decide(snapshot(1, **values), state, lane, now_s)
        made.append(decision)
    return made
