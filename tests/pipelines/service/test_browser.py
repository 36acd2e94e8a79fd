"""The policy that pages are sent with, in a real browser: figures are drawn, and nothing else is loaded."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

ASSETS = Path(__file__).parents[3] / "dashboards" / "assets"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PAGE = """<!doctype html><html lang="en"><head><title>Pool</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="assets/site.css"><script defer src="assets/plotly.min.js"></script>
<script defer src="assets/site.js"></script></head><body data-zone="UTC">
<div class="plot" style="height:300px"><script type="application/json">SPEC</script></div>INLINE</body></html>"""


@pytest.mark.browser
def test_figures_are_drawn_and_scripts_of_others_are_not_run(serving: Any, board: Any, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    shutil.copytree(ASSETS, tmp_path / "site" / "assets", ignore=shutil.ignore_patterns("__pycache__"))
    script = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    (tmp_path / "site" / "assets" / "plotly.min.js").write_bytes(script)
    spec = json.dumps({"data": [{"type": "scatter", "y": [3, 5, 4], "x0": 0, "dx": 1}], "layout": {}})
    page = PAGE.replace("SPEC", spec)
    (tmp_path / "site" / "index.html").write_text(page.replace("INLINE", ""))
    (tmp_path / "site" / "injected.html").write_text(page.replace("INLINE", "<script>document.title = 'run'</script>"))
    with serving(board, tmp_path / "site") as running, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab, said = browser.new_page(), []
        tab.set_default_timeout(120_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.goto(f"{running.web.address}/")
        tab.wait_for_selector(".plot svg .scatterlayer path.js-line")
        assert said == []
        tab.goto(f"{running.web.address}/injected.html")
        assert tab.title() == "Pool"
        assert any("Content Security Policy" in text for text in said)
        browser.close()
