"""What the floors cost, on the overview."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from dashboards.figures.costs import cost_figure
from dashboards.site import render_pages


def test_the_overview_shows_cost_and_no_number_where_it_is_not_known(site_data, costs):
    page = dict(render_pages(replace(site_data, costs=costs)))["index.html"]
    section = page.split('id="cost"')[1].split("</section>")[0]
    assert "111.11" in section, "48 $ for 432,000 tokens"
    rows = section.split("<tbody>")[1].split("</tr>")
    assert "3.5" in rows[2]
    assert "0.00" not in rows[2]
    assert '<h2 id="cost">Cost of the floors</h2>' in page
    assert "<h3>Cost of the floors</h3>" not in page, "the heading is not said twice"
    assert 'id="cost"' not in dict(render_pages(site_data))["index.html"]


def test_only_a_page_with_a_figure_loads_what_draws_it(site_data, costs):
    loads = {
        name: ('class="plot"' in page, "plotly.min.js" in page)
        for data in (site_data, replace(site_data, costs=costs))
        for name, page in ((f"{data.costs.height} costs, {file}", page) for file, page in render_pages(data))
    }
    assert loads["3 costs, index.html"] == (True, True)
    assert loads["0 costs, index.html"] == (False, False)
    assert [name for name, (has, loaded) in loads.items() if has and not loaded] == []


def test_the_dearest_class_is_at_the_top_with_its_pools(costs):
    priced = costs.filter(pl.col("usd").is_not_null())
    fig = cost_figure(priced)
    assert list(fig.layout.yaxis.categoryarray) == ["agent", "chat"]
    assert [(bar.name, list(bar.y), list(bar.x)) for bar in fig.data] == [("chat-70b", ["agent", "chat"], [24, 48])]
