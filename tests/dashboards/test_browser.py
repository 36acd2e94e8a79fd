"""The site in a real browser, from disk: drawn, quiet, offline, readable at both widths and in both schemes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dashboards.data import SiteData
from dashboards.site import build_site

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<b>x</b><img src=x onerror=alert(1)><script>alert(1)</script>&\"'"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium"),
]

VISIBLE = """() => [...document.querySelectorAll('.plot')].map(plot => [...plot.querySelectorAll(
    '.scatterlayer path.js-line, .scatterlayer path.point, .barlayer path')].filter(p => p.getAttribute('d')).length)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(renamed: Callable[[str], SiteData], costs: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one class whose name would be markup wherever it were not escaped, and with every figure there is."""
    data = replace(renamed(HOSTILE), costs=costs)
    return build_site(data, tmp_path_factory.mktemp("built") / "site").parent


def watched(browser: Browser, *, width: int, scheme: str) -> tuple[Page, list[str]]:
    """A new page, and the list of everything it should not have done."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:")) else faults.append(f"left: {request.url}"),
    )
    return page, faults


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_is_drawn_whole_and_quiet(browser: Browser, site: Path, width: int, scheme: str) -> None:
    page, faults = watched(browser, width=width, scheme=scheme)
    drawn: dict[str, int] = {}
    for file in sorted(site.glob("*.html")):
        page.goto(file.as_uri())
        page.wait_for_function("() => [...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{file.name} overflows"
        paths = page.evaluate(VISIBLE)
        assert all(paths), f"{file.name}: a figure without lines, points or bars: {paths}"
        drawn[file.name] = len(paths)
        assert page.locator("h1").count() == 1
        assert page.locator(".plot:not([aria-label])").count() == 0
        assert page.title().endswith("floorcast")
    assert sum(drawn.values()) > 20
    assert drawn["index.html"] == 1, "the cost of the floors"
    assert faults == []
    page.context.close()


@pytest.mark.parametrize("name", ["index.html", "pool-chat-70b.html"])
def test_at_1440_no_column_of_a_table_is_out_of_view(browser: Browser, site: Path, name: str) -> None:
    page, _ = watched(browser, width=1440, scheme="light")
    page.goto((site / name).as_uri())
    tables = page.locator(".scroll")
    assert tables.count() > 0
    assert tables.evaluate_all("all => all.filter(box => box.scrollWidth > box.clientWidth).length") == 0
    page.context.close()


def test_links_lead_from_overview_to_pool_to_class_and_back(browser: Browser, site: Path) -> None:
    page, faults = watched(browser, width=1440, scheme="light")
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="chat-70b").first.click()
    assert page.locator("h1").inner_text() == "chat-70b"
    page.get_by_role("link", name="chat", exact=True).click()
    assert page.locator("h1").inner_text() == "chat"
    page.get_by_role("link", name="Accuracy").click()
    assert "Accuracy" in page.locator("h1").inner_text()
    page.get_by_role("link", name=HOSTILE, exact=True).first.click()
    assert page.locator("h1").inner_text() == HOSTILE
    page.get_by_role("navigation").get_by_role("link", name="Overview").click()
    assert page.locator("h1").inner_text() == "Fleet overview"
    assert faults == []
    page.context.close()


def test_a_hostile_name_is_text_in_figures_too(browser: Browser, site: Path) -> None:
    page, faults = watched(browser, width=1440, scheme="light")
    page.goto((site / "accuracy.html").as_uri())
    page.wait_for_selector(".plot .ytick text")
    assert HOSTILE in page.locator(".plot").first.locator(".ytick text").all_text_contents()
    assert page.locator("img").count() == 0
    assert faults == []
    page.context.close()


def test_figures_follow_the_scheme_while_open(browser: Browser, site: Path) -> None:
    page, faults = watched(browser, width=1440, scheme="light")
    page.goto((site / "class-chat.html").as_uri())
    colour = "() => getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({colour})() !== light", arg=light)
    assert (light, page.evaluate(colour)) == ("rgb(24, 32, 44)", "rgb(228, 233, 240)")
    assert faults == []
    page.context.close()


def test_gaps_stay_open_and_tooltips_have_both_times(browser: Browser, site: Path) -> None:
    """The observed line has a gap of four hours, so it is drawn in two pieces."""
    page, _ = watched(browser, width=1440, scheme="light")
    page.goto((site / "class-chat.html").as_uri())
    page.wait_for_selector(".plot .main-svg")
    pieces = page.evaluate(
        "[...document.querySelectorAll('#tokens_in ~ .chart .trace')]"
        ".map(trace => trace.querySelectorAll('path.js-line').length)"
    )
    assert sorted(pieces)[-2:] == [1, 2], "one line in two pieces, every other whole"
    box = page.locator(".plot").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2)
    tooltip = page.locator(".plot .hoverlayer .legend").first
    tooltip.wait_for()
    text = tooltip.text_content() or ""
    assert "UTC" in text
    assert "CET" in text or "GMT+1" in text
    assert "tokens/s" in text
    page.context.close()


def test_an_old_page_says_so_when_it_is_opened_late(browser: Browser, site_data: SiteData, tmp_path: Path) -> None:
    """The page cannot know when it is read, so the reader's clock decides."""
    index = build_site(site_data, tmp_path / "site")
    page, _ = watched(browser, width=1440, scheme="light")
    page.goto(index.as_uri())
    assert page.locator("[data-valid-until]").is_hidden()
    page.clock.set_fixed_time("2200-01-01T00:00:00Z")
    page.reload()
    assert page.get_by_text("This page is old.").is_visible()
    page.context.close()
