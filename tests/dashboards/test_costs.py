"""What the floors cost, on the overview."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import polars as pl
import pytest

from dashboards.figures.costs import cost_figure
from dashboards.site import render_pages
from floorcast.columns import COSTS

ROWS = [
    ("chat-70b", "chat", date(2026, 11, 30), 12.0, 48.0, 432_000.0),
    ("chat-70b", "agent", date(2026, 11, 30), 6.0, 24.0, None),
    ("batch-8b", "nightly-batch", date(2026, 11, 30), 3.5, None, 1e6),
]


@pytest.fixture
def costs() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=dict(COSTS), orient="row")


def test_the_overview_shows_cost_and_no_number_where_it_is_not_known(site_data, costs):
    page = dict(render_pages(replace(site_data, costs=costs)))["index.html"]
    section = page.split('id="cost"')[1].split("</section>")[0]
    assert "111.11" in section, "48 $ for 432,000 tokens"
    rows = section.split("<tbody>")[1].split("</tr>")
    assert "3.5" in rows[2]
    assert "0.00" not in rows[2]
    assert 'id="cost"' not in dict(render_pages(site_data))["index.html"]


def test_the_dearest_class_is_at_the_top_with_its_pools(costs):
    priced = costs.filter(pl.col("usd").is_not_null())
    fig = cost_figure(priced)
    assert list(fig.layout.yaxis.categoryarray) == ["agent", "chat"]
    assert [(bar.name, list(bar.y), list(bar.x)) for bar in fig.data] == [("chat-70b", ["agent", "chat"], [24, 48])]
