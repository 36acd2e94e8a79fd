"""The static site."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from dashboards.data import load
from dashboards.site import build_site
from pipelines.project import Project
from pipelines.stages.common import StageResult, read_series
from scaling.money import costs
from store.connection import open_store


class DashboardResult(StageResult):
    page: Path
    pages: int

    @property
    def summary(self) -> str:
        return f"{self.pages} pages, {self.page}"


def dashboard(project: Project, now: datetime) -> DashboardResult:
    """Build the site from what was known at `now`. Masked steps, as of an outage recorded as zeros, are gaps on it."""
    _, cleaned = read_series(project, as_of=project.as_of(now))
    with open_store(project.store_path) as store:
        data = load(store, project.config, now=now)
    shown = data.demand.join(cleaned, on=["workload_class", "step_start"], how="semi")
    spent = costs(project.config, floors=data.floors, forecasts=data.forecasts)
    page = build_site(replace(data, demand=shown, costs=spent), project.site)
    return DashboardResult(page=page, pages=len(list(project.site.glob("**/*.html"))))
