"""Reading the site's data from a real store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl

from dashboards.data import SiteData, load
from dashboards.site import build_site
from floorcast.columns import REJECTS, conform
from floorcast.config import Config
from store.accuracy import write_accuracy
from store.connection import open_store
from store.demand import upsert_demand
from store.findings import replace_findings
from store.fits import write_fits
from store.floors import write_floors
from store.forecasts import write_forecasts
from store.publications import record_publication
from store.rejects import replace_rejects
from store.runs import start_run


def test_an_empty_store_makes_a_site(config: Config, site_data: SiteData, tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        data = load(store, config, now=site_data.now)
    assert data.publication is None
    assert data.floors.is_empty()
    assert build_site(data, tmp_path / "site").is_file()


def test_what_was_stored_is_what_is_shown(config: Config, site_data: SiteData, tmp_path: Path) -> None:
    now = site_data.now
    rejects = pl.DataFrame(
        {
            "source": ["prod"] * 3,
            "file": ["a.csv"] * 3,
            "row_number": [9, 4, 7],
            "reason": ["late", "negative", "negative"],
            "raw": ["x", "y", "z"],
        }
    )
    with open_store(tmp_path / "s.duckdb") as store:
        start_run(store, run_id="run-1", kind="cycle", started_at=now, as_of=now)
        upsert_demand(store, site_data.demand)
        write_forecasts(store, "run-1", site_data.forecasts)
        write_fits(store, "run-1", site_data.fits, site_data.scores)
        write_floors(store, "run-1", site_data.floors)
        write_accuracy(store, "run-1", now, site_data.accuracy)
        replace_rejects(store, "prod", conform(rejects, REJECTS))
        replace_findings(store, site_data.findings)
        assert site_data.publication is not None
        record_publication(store, site_data.publication)
        data = load(store, config, now=now, days=2)
        early = load(store, config, now=now - timedelta(hours=1))
    assert data.publication == site_data.publication
    assert data.demand.equals(site_data.demand.filter(pl.col("step_start") >= now - timedelta(days=2)))
    for name in ("forecasts", "floors", "accuracy", "fits"):
        keys = ["workload_class", "metric"] if name != "floors" else ["pool", "window_start"]
        theirs, ours = getattr(data, name).sort(keys), getattr(site_data, name).sort(keys)
        assert theirs.select(ours.columns).height == ours.height, name
    assert data.rejects.select("reason", "rows", "row_number", "raw").rows() == [
        ("negative", 2, 4, "y"),
        ("late", 1, 9, "x"),
    ]
    assert early.publication is None, "what is issued later is not known yet"
    assert early.floors.is_empty()
    assert data.findings.sort("start").equals(site_data.findings.sort("start"))
