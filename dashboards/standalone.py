"""A page that is one file: styles, scripts and figures are in it, and it opens from disk, offline."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards import text
from floorcast import __version__

_HERE = Path(__file__).parent


def standalone_page(template: str, *, folder: Path | None = None, **context: Any) -> str:
    """The HTML of a template that extends `standalone.html`, ours or one of the caller's `folder`."""
    loader = FileSystemLoader([_HERE / "templates", *([] if folder is None else [folder])])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"number": text.number, "percent": text.percent, "wait": text.wait}
    assets = {name: Markup((_HERE / "assets" / f"site.{name}").read_text(encoding="utf-8")) for name in ("css", "js")}
    plotly_js = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        **context, floorcast_version=__version__, plotly_js=Markup(plotly_js), **assets
    )
