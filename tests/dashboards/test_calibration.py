"""The page of a calibration, from tiny frames."""

from __future__ import annotations

import re

import polars as pl

from dashboards.calibration import calibration_page
from dashboards.figures.calibration import capacity_figure, latency_figure

RUNS = pl.DataFrame(
    {
        "mix": ["a <b>", "a <b>", "c", "c"],
        "requests_per_s": [1.0, 2.0, 3.0, 4.0],
        "strain": [0.5, 2.0, 0.25, None],
    }
)
EDGES = pl.DataFrame(
    {
        "mix": ["a <b>", "c"],
        "requests_per_s": [1.5, 3.0],
        "tokens_in_per_s": [1500.0, 300.0],
        "tokens_out_per_s": [300.0, 600.0],
        "knee_per_s": [1.0, None],
        "knee_strain": [0.5, None],
    }
)


def named(fig, name):
    return next(trace for trace in fig.data if trace.name == name)


def test_each_mix_is_a_line_and_a_failed_run_leaves_a_gap():
    fig = latency_figure(RUNS, EDGES)
    assert list(named(fig, "c").y) == [0.25, None]
    assert list(named(fig, "a &lt;b&gt;").x) == [1.0, 2.0]
    assert (list(named(fig, "edge").x), list(named(fig, "edge").y)) == ([1.5, 3.0], [1.0, 1.0])
    assert (list(named(fig, "knee").x), list(named(fig, "knee").y)) == ([1.0], [0.5])


def test_capacity_is_a_rectangle_for_max_and_a_triangle_for_sum():
    def outline(combine):
        fig = capacity_figure(EDGES, prefill_tokens_per_s=2000.0, decode_tokens_per_s=800.0, combine=combine)
        drawn = named(fig, f"sustained ({combine})")
        return list(zip(drawn.x, drawn.y, strict=True))

    assert outline("max") == [(0, 800), (2000, 800), (2000, 0)]
    assert outline("sum") == [(0, 800), (2000, 0)]


def test_the_page_stands_alone_and_shows_names_as_text():
    page = calibration_page(
        RUNS,
        EDGES,
        prefill_tokens_per_s=2000.0,
        decode_tokens_per_s=None,
        combine="max",
        headline="one replica sustains <1>",
        snippet="pools:\n  chat: {}",
        notes=["a & b"],
    )
    assert "one replica sustains &lt;1&gt;" in page
    assert "a &amp; b" in page
    assert not re.search(r'(src|href)="(?!data:)', page.split("<script>")[0])
    assert page.count('type="application/json"') == 2
