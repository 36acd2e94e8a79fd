"""A restart goes on where the process ended."""

from __future__ import annotations

import numpy as np
import pytest

from floorcast.errors import DataError
from scaling.overlay.decide import decide
from scaling.overlay.lanes import repeat
from scaling.overlay.signals import snapshot
from scaling.overlay.state import begin, from_arrays, to_arrays


def ticks(lanes):
    rng = np.random.default_rng(1)
    for i in range(80):
        rates = {"tokens_in_per_s": rng.uniform(0, 9_000, lanes), "tokens_out_per_s": rng.uniform(0, 900, lanes)}
        yield 15.0 * i, snapshot(lanes, **rates, waiting_requests=rng.integers(0, 60, lanes).astype(float), ready=6)


def test_a_state_written_to_a_file_and_read_back_decides_as_before(settings, tmp_path):
    lane = repeat(settings(panic={}), 3)
    plain = restarted = begin(3, 0.0)
    for number, (now_s, signals) in enumerate(ticks(3)):
        expected, plain = decide(signals, plain, lane, now_s)
        if number % 20 == 7:
            np.savez(tmp_path / "state.npz", **to_arrays(restarted))
            with np.load(tmp_path / "state.npz") as arrays:
                restarted = from_arrays(dict(arrays), lanes=3, where="state.npz")
        found, restarted = decide(signals, restarted, lane, now_s)
        assert found.desired.tolist() == expected.desired.tolist()
        assert found.after.tolist() == expected.after.tolist()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda arrays: {name: arrays[name] for name in arrays if name != "mean"}, "mean is missing"),
        (lambda arrays: arrays | {"desired": np.zeros(2)}, r"desired is float64\[2\], not float64\[3\]"),
        (lambda arrays: arrays | {"pace_slot": np.zeros((2, 7, 3))}, "pace_slot is float64"),
    ],
)
def test_a_state_of_another_shape_is_refused_with_its_name(broken, said):
    arrays = to_arrays(begin(3, 0.0))
    with pytest.raises(DataError, match=said) as caught:
        from_arrays(broken(arrays), lanes=3, where="published/overlay.npz")
    assert "published/overlay.npz" in str(caught.value)
    assert "delete it" in caught.value.remedy
