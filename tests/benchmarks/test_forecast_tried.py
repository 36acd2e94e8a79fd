"""Candidates tried beside the product's: one model's recursion, and the sections that the page gets of them."""

from __future__ import annotations

import numpy as np
import pytest
from statsforecast.models import DynamicOptimizedTheta

from benchmarks.forecast.trials import theta_paths
from benchmarks.forecast.tried_table import kept_in, put_into, sections


@pytest.mark.parametrize("slope", [0.4, -0.3])
def test_the_theta_recursion_forecasts_as_statsforecast_does(slope: float) -> None:
    values = 50 + slope * np.arange(120) + np.random.default_rng(3).normal(size=120)
    model = DynamicOptimizedTheta(season_length=1)
    found = model.fit(values).model_["par"]
    parameters = [float(found[name]) for name in ("initial_smoothed", "alpha", "theta")]
    assert parameters[2] > 1.1, "at 1 it would be exponential smoothing"
    made = theta_paths(values, np.array([80, 120]), 6, *parameters)
    np.testing.assert_allclose(made[1], model.predict(6)["mean"], rtol=1e-6)
    np.testing.assert_allclose(made[0], theta_paths(values[:80], np.array([80]), 6, *parameters)[0])


def row(candidate: str, **more: object) -> dict[str, object]:
    return {"workload_class": "a", "metric": "tokens_in", "window": "lead", "candidate": candidate, **more}


def test_sections_tell_sums_and_stand_once_in_the_page() -> None:
    """Two series: the mixture loses 1 + 3 without `ets` and 1.2 + 2.6 with it, 5 % less; last value 2 + 3."""
    losses = {"own": 2.5, "weight": 0.2, "seconds": 0.1}
    rows = [
        row("ets", **losses, last_value=2.0, without=1.0) | {"with": 1.2},
        row("ets", **losses, last_value=3.0, without=3.0) | {"with": 2.6, "workload_class": "b"},
        row("theta", why="history of 1d is under 2d"),
        row("last_value", left_out=1.0, **losses, last_value=2.0, without=1.1) | {"with": 1.98},
        row("", why="no forecast pays: 0.99 of last value's") | {"window": "says"},
    ]
    made = sections({"trace": rows})
    assert "| lead | ets | trace | 2 | 1.000 | 0.200 | 0.200 | -5.0% | -13.3% | +20.0% | 0.100 |" in made
    assert "| a | tokens_in | 0.990 | no forecast pays: 0.99 of last value's |" in made
    page = put_into("# Page\n\ntext\n\n# The demo history\n\nmore\n", made)
    assert page.index("text") < page.index("## Tried and dropped") < page.index("# The demo history")
    assert kept_in(page) == made
    assert put_into(page, made) == page
