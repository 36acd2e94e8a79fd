"""The static site."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from dashboards.data import Changed, PoolChange, load
from dashboards.site import build_site
from floorcast.types import FloorSchedule
from pipelines.project import Project
from pipelines.stages.common import StageResult, read_series
from scaling.diff import diff
from scaling.money import costs
from store.connection import Store, open_store
from store.publications import PublicationRecord, latest_publication


def _changed(store: Store, publication: PublicationRecord | None) -> Changed | None:
    """What the publication changed against the one before, if there is one."""
    before = latest_publication(store, before=publication.issued_at) if publication else None
    if publication is None or before is None:
        return None
    old, new = (FloorSchedule.model_validate_json(one.schedule) for one in (before, publication))
    pools = tuple(PoolChange(one.pool, one.status, one.replica_hours, one.causes) for one in diff(old, new))
    return Changed(before.version, before.issued_at, pools)


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
        changed = _changed(store, data.publication)
    shown = data.demand.join(cleaned, on=["workload_class", "step_start"], how="semi")
    spent = costs(project.config, floors=data.floors, forecasts=data.forecasts)
    page = build_site(replace(data, demand=shown, costs=spent, changed=changed), project.site)
    return DashboardResult(page=page, pages=len(list(project.site.glob("**/*.html"))))
