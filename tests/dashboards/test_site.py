"""The pages as text: complete, linked, escaped."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import plotly
import polars as pl
import pytest

from dashboards.data import SiteData
from dashboards.site import build_site, render_pages

HOSTILE = "<b>x</b><script>alert(1)</script>&\"'"


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value and not value.startswith(("#", "data:")):
                self.found.add(value)


@pytest.fixture(scope="module")
def pages(site_data: SiteData) -> dict[str, str]:
    return dict(render_pages(site_data))


def test_one_page_for_each_pool_and_class_beside_overview_accuracy_and_quality(pages: dict[str, str]) -> None:
    assert sorted(pages) == [
        "accuracy.html",
        "class-agent.html",
        "class-chat.html",
        "class-nightly-batch.html",
        "index.html",
        "pool-batch-8b.html",
        "pool-chat-70b.html",
        "quality.html",
    ]


def test_quality_page_lists_every_finding_newest_first(pages: dict[str, str]) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", pages["quality.html"]))
    jump, gap = (text.index(kind) for kind in ("unit jump agent tokens in Mon 30 Nov 00:55 UTC", "gap all both"))
    assert jump < gap
    assert "7h35m yes 1,003 times as much until it came back" in text
    assert "4h no no data for 48 steps" in text


def test_quality_page_says_that_nothing_was_found(empty_data: SiteData) -> None:
    assert "Nothing suspicious was found." in dict(render_pages(empty_data))["quality.html"]


def test_built_site_holds_every_file_it_links_to(site_data: SiteData, tmp_path: Path) -> None:
    index = build_site(site_data, tmp_path / "site")
    assert index == tmp_path / "site" / "index.html"
    for page in index.parent.glob("*.html"):
        links = Links()
        links.feed(page.read_text())
        assert links.found, page.name
        for link in links.found:
            assert (page.parent / link).is_file(), f"{page.name} links to {link}"


def test_plotly_is_one_local_file_and_only_where_there_are_figures(site_data: SiteData, tmp_path: Path) -> None:
    folder = build_site(site_data, tmp_path / "site").parent
    installed = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    assert (folder / "assets" / "plotly.min.js").stat().st_size == installed.stat().st_size
    assert "plotly.min.js" not in (folder / "index.html").read_text()
    assert all(page.stat().st_size < 120_000 for page in folder.glob("*.html"))


def test_a_class_name_is_data_and_never_markup(renamed: Callable[[str], SiteData]) -> None:
    pages = dict(render_pages(renamed(HOSTILE)))
    for name, page in pages.items():
        assert "<script>alert" not in page, name
        assert "<b>x" not in page, name
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages["index.html"]


def test_an_expired_publication_is_said_loudly_on_every_page(site_data: SiteData) -> None:
    late = dataclasses.replace(site_data.publication, valid_until=site_data.now - timedelta(minutes=1))
    for name, page in render_pages(dataclasses.replace(site_data, publication=late)):
        assert 'role="alert"' in page, name
        assert "has expired" in page, name


def test_a_valid_publication_raises_no_alarm(pages: dict[str, str]) -> None:
    assert not [name for name, page in pages.items() if 'role="alert"' in page]
    assert "version 42" in pages["index.html"]


def test_before_the_first_publication_the_pages_say_so_and_show_no_zero(empty_data: SiteData) -> None:
    pages = dict(render_pages(empty_data))
    assert "Nothing is published yet" in pages["index.html"]
    assert "No floors are published" in pages["pool-chat-70b.html"]
    assert "Nothing was observed" in pages["class-chat.html"]
    assert "No forecast is old enough" in pages["accuracy.html"]
    assert not re.search(r'<td class="n[^"]*">0', pages["index.html"])


def test_reasons_rejects_and_disqualified_candidates_are_shown(pages: dict[str, str]) -> None:
    assert "negative tokens" in pages["index.html"]
    assert "did not converge" in pages["class-chat.html"]
    assert "past weeks" in pages["pool-batch-8b.html"]


def test_a_shortfall_is_tagged_beside_the_next_peak_on_both_pages(site_data: SiteData, pages: dict[str, str]) -> None:
    short = pl.col("reason").str.replace('"shortfall_replicas":0', '"shortfall_replicas":2', literal=True)
    floors = site_data.floors.with_columns(pl.when(pool="chat-70b").then(short).otherwise("reason").alias("reason"))
    found = dict(render_pages(dataclasses.replace(site_data, floors=floors)))
    served = pl.col("reason").str.replace(
        '"shortfall_replicas":2',
        '"shortfall_replicas":2,"admission":{"chat":{"share":1,"tokens_in_per_s":7,"tokens_out_per_s":7},'
        '"agent":{"share":0.4,"tokens_in_per_s":800,"tokens_out_per_s":1200}}',
        literal=True,
    )
    page = dict(render_pages(dataclasses.replace(site_data, floors=floors.with_columns(served))))["pool-chat-70b.html"]
    assert "agent served 40 % at peak: 800 tokens/s in, 1,200 out" in page
    assert "chat served" not in page
    tag = '<span class="tag bad">short by up to 2</span>'
    assert [name for name, page in found.items() if tag in page] == ["index.html", "pool-chat-70b.html"]
    assert not [name for name, page in pages.items() if 'tag bad">short' in page]


def test_events_are_shown_in_the_pools_rows_and_on_the_classs_page(site_data: SiteData) -> None:
    start, end = site_data.now + timedelta(hours=1), site_data.now + timedelta(hours=2)
    launch = pl.col("step_start").is_between(start, end, closed="left")
    changed = launch & (pl.col("workload_class") == "chat") & (pl.col("metric") == "tokens_out")
    label = pl.when(changed).then(pl.lit("mstl_ets, x1.5 launch-day")).otherwise("model")
    reason = pl.col("reason").str.replace_all('"model_out":"mstl_ets"', '"model_out":"mstl_ets, x1.5 launch-day"')
    data = dataclasses.replace(
        site_data,
        forecasts=site_data.forecasts.with_columns(label.alias("model")),
        floors=site_data.floors.with_columns(pl.when(pool="chat-70b").then(reason).otherwise("reason").alias("reason")),
    )
    found = dict(render_pages(data))
    assert '<td class="long">x1.5 launch-day' in found["pool-chat-70b.html"]
    text = re.sub(r"<[^>]+>", "", found["class-chat.html"]).replace("\N{NO-BREAK SPACE}", " ")
    said = "by x1.5 launch-day from Mon 30 Nov 09:55 UTC (10:55 CET) to Mon 30 Nov 10:55 UTC (11:55 CET)."
    assert text.count("Forecast adjusted") == text.count(said) == 1
    assert text.index("Tokens out") < text.index(said)
    assert "adjusted by" not in found["class-agent.html"]


def test_accuracy_that_rests_on_few_forecasts_says_how_few_and_is_grey(site_data: SiteData) -> None:
    few = (pl.col("workload_class") == "chat") & (pl.col("horizon") == "lead")
    accuracy = site_data.accuracy.with_columns(pl.when(few).then(99).otherwise(100).alias("steps").cast(pl.Int64))
    found = dict(render_pages(dataclasses.replace(site_data, accuracy=accuracy)))
    assert found["index.html"].count('<td class="n few">') == found["index.html"].count("<small>n 99</small>") == 2
    assert found["index.html"].count("<small>n 100</small>") == 4
    assert found["accuracy.html"].count('<tr class="few">') == found["class-chat.html"].count('<tr class="few">') == 2
    assert 'class="few"' not in found["class-agent.html"]


def test_a_classs_page_tells_its_drift_and_whether_a_fit_has_seen_it(pages: dict[str, str]) -> None:
    text = re.sub(r"<[^>]+>", "", pages["class-agent.html"]).replace("\N{NO-BREAK SPACE}", " ")
    coverage = "Drift, found Mon 30 Nov 08:55 UTC (09:55 CET): coverage lost, 80 % of 95 % over 9h. The next cycle fits"
    level = "Drift, found Mon 30 Nov 08:35 UTC (09:35 CET): level shifted, 400 tokens/s against 100, over 9h. Fitted"
    assert text.index("Tokens in") < text.index(coverage) < text.index("Tokens out") < text.index(level)
    assert "Drift" not in pages["class-chat.html"]


def test_rendering_is_the_same_every_time(site_data: SiteData, pages: dict[str, str]) -> None:
    assert dict(render_pages(site_data)) == pages


def test_what_is_short_comes_early_in_the_table_of_pools(pages: dict[str, str]) -> None:
    """A phone shows the first three columns."""
    table = pages["index.html"].split('<h2 id="pools">')[1].split("</thead>")[0]
    assert re.findall(r"<th [^>]*>([^<]+)</th>", table)[:3] == ["Pool", "Floor now", "Next peak"]
