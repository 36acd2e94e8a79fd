"""The static site: an overview, a page per pool and class, accuracy, data quality. Opens from disk, offline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboards import text
from dashboards.data import SiteData
from dashboards.pages import accuracy_context, class_context, cost_context, pool_chart, quality_context
from dashboards.swap import replaced_folder
from dashboards.views import class_views, pool_views
from floorcast import __version__
from floorcast.units import format_duration, format_time

_HERE = Path(__file__).parent


def build_site(data: SiteData, out: Path) -> Path:
    """Write the site into the folder `out`, replacing an earlier one at once, and return its `index.html`.

    Raises PublishError where `out` holds something else or cannot be written.
    """
    with replaced_folder(out) as folder:
        assets = folder / "assets"
        shutil.copytree(_HERE / "assets", assets, ignore=shutil.ignore_patterns("__pycache__"))
        plotly_js = files("plotly").joinpath("package_data", "plotly.min.js")
        (assets / "plotly.min.js").write_bytes(plotly_js.read_bytes())
        for name, page in render_pages(data):
            (folder / name).write_text(page, encoding="utf-8")
    return out / "index.html"


def render_pages(data: SiteData) -> Iterator[tuple[str, str]]:
    """File name and HTML of every page."""
    environment = _environment(data)
    pools, classes = pool_views(data), class_views(data)
    pages = {view.name: view.page for view in classes}
    yield (
        "index.html",
        environment.get_template("index.html").render(
            pools=pools, classes=classes, changed=data.changed, **cost_context(data)
        ),
    )
    floors = data.floors.partition_by("pool", as_dict=True)
    for pool in pools:
        chart = pool_chart(data, pool, floors.get((pool.name,)))
        yield pool.page, environment.get_template("pool.html").render(pool=pool, chart=chart, class_pages=pages)
    frames = {
        name: getattr(data, name).partition_by("workload_class", as_dict=True)
        for name in ("demand", "forecasts", "scores", "drift", "accuracy")
    }
    for view in classes:
        own = {name: by_class.get((view.name,), getattr(data, name).clear()) for name, by_class in frames.items()}
        yield view.page, environment.get_template("class.html").render(**class_context(data, view, own))
    yield "accuracy.html", environment.get_template("accuracy.html").render(**accuracy_context(data, pages))
    yield "quality.html", environment.get_template("quality.html").render(**quality_context(data, pages))


def _environment(data: SiteData) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": text.number,
        "percent": text.percent,
        "when": partial(text.when, zone=data.config.zone),
        "duration": format_duration,
        "iso": format_time,
    }
    record = data.publication
    environment.globals |= {
        "config": data.config,
        "now": data.now,
        "publication": record,
        "expired": record is not None and record.valid_until <= data.now,
        "rejects": data.rejects,
        "floorcast_version": __version__,
        "unknown": text.UNKNOWN,
        "few": text.FEW,
        "page_name": text.page_name,
    }
    return environment
