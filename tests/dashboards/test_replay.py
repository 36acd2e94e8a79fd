"""The page of a replay, from a tiny frame."""

from __future__ import annotations

import re

import polars as pl
import pytest

from dashboards.figures.pareto import pareto_figure
from dashboards.replay import ReplayedPool, replay_page

FIGURES = pl.DataFrame(
    {
        "policy": ["floorcast", "floorcast", "static_peak"],
        "margin": [0.0, 0.15, None],
        "gpu_hours": [100.0, 120.0, 200.0],
        "on_time_share": [0.98, 0.999, 1.0],
        "on_front": [True, True, False],
    }
)
ROWS = FIGURES.with_columns(
    kept=pl.Series([True, True, False]),
    over_clairvoyant=pl.Series([1.1, 1.3, None]),
    usd=pl.Series([None, 5.0, 6.0]),
    tokens=pl.Series([10.0, 10.0, 0.0]),
    given_up=pl.Series([1.0, 0.0, 0.0]),
    **{name: pl.lit(1.5) for name in ("wait_p50_s", "wait_p95_s", "wait_p99_s")},
    **{name: pl.lit(2.0) for name in ("theta_u", "theta_o", "tau_u", "tau_o")},
    scale_outs=pl.lit(3),
    scale_ins=pl.lit(4),
)


def named(fig, name):
    return next(trace for trace in fig.data if trace.name == name)


def test_each_policy_is_a_line_of_late_tokens_over_cost_and_none_late_is_drawn_at_the_foot():
    fig = pareto_figure(FIGURES, on_time=0.99, clairvoyant_gpu_hours=90.0)
    ours, static = named(fig, "floorcast"), named(fig, "static peak")
    assert list(ours.x) == [100, 120]
    assert list(ours.y) == pytest.approx([2.0, 0.1])
    assert list(static.y) == pytest.approx([0.001])
    assert [symbol.endswith("open") for symbol in ours.marker.symbol] == [False, False]
    assert [symbol.endswith("open") for symbol in static.marker.symbol] == [True]
    assert [shape.x0 for shape in fig.layout.shapes][1] == 90
    assert fig.layout.shapes[0].y0 == pytest.approx(1.0)


def test_without_a_clairvoyant_only_the_promise_is_marked():
    fig = pareto_figure(FIGURES, on_time=1.0, clairvoyant_gpu_hours=None)
    (promise,) = fig.layout.shapes
    assert promise.y0 == pytest.approx(0.001)


def test_the_page_stands_alone_and_shows_names_as_text():
    pool = ReplayedPool(
        name="chat <b>",
        headline="99% & more",
        on_time=0.99,
        clairvoyant_gpu_hours=None,
        figures=FIGURES,
        rows=ROWS,
        notes=["assumed: <nothing>"],
    )
    page = replay_page([pool, pool])
    assert page.count('type="application/json"') == 2
    assert "chat &lt;b&gt;" in page
    assert "assumed: &lt;nothing&gt;" in page
    assert "+15 %" in page
    assert "10.00 %" in page
    assert not re.search(r'(src|href)="(?!data:)', page.split("<script>")[0])


def test_what_no_policy_gave_up_has_no_column_and_waits_are_told_in_fitting_units():
    rows = ROWS.with_columns(given_up=pl.lit(0.0), wait_p99_s=pl.lit(1077.5))
    pool = ReplayedPool(
        name="chat", headline="", on_time=0.99, clairvoyant_gpu_hours=90.0, figures=FIGURES, rows=rows, notes=[]
    )
    page = replay_page([pool])
    assert "Given up" not in page
    assert "1.5 s" in page
    assert "18 min" in page
