"""Each policy by hand, at its first tick: no history, nothing to wait for."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.overlay.decide import decide
from scaling.overlay.settings import Trigger
from scaling.overlay.signals import snapshot
from scaling.overlay.state import begin


@pytest.mark.parametrize(
    ("replicas", "utilization", "desired"),
    [
        # 4 x 0.78 / 0.70 = 4.457;  5 x 0.84 / 0.70 = 6 exactly;  5 x 0.95 / 0.70 = 6.786
        pytest.param(4, 0.78, 5, id="4 replicas at 78 % for 70 %"),
        pytest.param(5, 0.84, 6, id="5 at 84 %, a whole number in spite of float noise"),
        pytest.param(5, 0.95, 7, id="5 at 95 %"),
        # 5 x 0.72 / 0.70 = 5.14, but 3 % is within the tolerance
        pytest.param(5, 0.72, 5, id="within the tolerance"),
    ],
)
def test_target_tracking(settings, replicas, utilization, desired):
    lane = settings(policy="target_tracking", utilization="gpu")
    decision, _ = decide(snapshot(1, gpu_utilization=utilization, ready=replicas), begin(1, 0.0), lane, 0.0)
    assert decision.desired.tolist() == [desired]


def test_composite_score(settings):
    """0.4 x 0.78/0.70 + 0.3 x 3/5 + 0.3 x 850/500 = 0.4457 + 0.18 + 0.51 = 1.136, above 1: 4 x 1.136 = 4.54, so 5."""
    lane = settings(policy="composite", utilization="gpu")
    signals = snapshot(1, gpu_utilization=0.78, waiting_requests=4 * 3, ttft_p95_s=0.85, ready=4)
    decision, _ = decide(signals, begin(1, 0.0), lane, 0.0)
    assert decision.wishes.value[Trigger.SCORE, 0] == pytest.approx(1.136, abs=5e-4)
    assert decision.desired.tolist() == [5]
    assert decision.desired.dtype == np.int64
