"""A fleet of prefill and decode pools with a calendar, through the real stages up to manifests and pages."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest
import yaml

from floorcast.columns import Metric
from floorcast.types import Reason
from forecasting.evaluation import evaluate
from pipelines.project import load_project
from pipelines.publishers.manifests import write_manifests
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.common import read_series
from scaling.explain import explain
from scaling.recompute import recompute
from store.accuracy import read_accuracy
from store.connection import open_store
from store.fits import read_fits
from store.floors import read_floors
from store.forecasts import read_forecasts
from store.pool_shares import read_pool_shares
from store.publications import latest_publication

HOUR = timedelta(hours=1)
POOLS = """\
pools:
  chat-prefill:
    role: prefill
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 3200}
    startup: {p90: 4m}
    bounds: {min: 1, max: 60}
    margin: {quantile: 0.9}
  chat-decode:
    role: decode
    gpu: {type: H200}
    capacity: {decode_tokens_per_s: 1800}
    startup: {p90: 90m}
    bounds: {min: 1, max: 60}
    calendar:
      - {name: evening, start: "19:00", end: "20:00", zone: Europe/Berlin, minimum: 50}
      - {name: works, kind: maintenance, start: "11:00", end: "12:00", zone: Europe/Berlin, ceiling: 0}
"""
CHAT = """\
    gpu: {type: H100, per_replica: 2, usd_per_gpu_hour: 3.99}
    capacity: {prefill_tokens_per_s: 1600, decode_tokens_per_s: 900}
    startup: {p90: 4m}
    bounds: {min: 1, max: 60}
    fallback_replicas: 30
"""
STAGES = ("ingest", "fit", "forecast", "plan", "publish", "dashboard")


@pytest.fixture(scope="module")
def fleet(_blank, tmp_path_factory, live, now):
    """Both classes of the pool chat-70b moved to a prefill and a decode pool; code-8b stays."""
    file = shutil.copytree(_blank, tmp_path_factory.mktemp("roles") / "project") / "floorcast.yaml"
    text = file.read_text().replace("pools:\n  chat-70b:\n" + CHAT, POOLS)
    file.write_text(text.replace("[chat-70b]", "[chat-prefill, chat-decode]"))
    project = load_project(file, environment={})
    ran = live(project, now, *STAGES)
    return project, ran


def _reasons(project, pool, now):
    with open_store(project.store_path) as store:
        record = latest_publication(store, at=now)
        rows = read_floors(store, record.run_id).filter(pool=pool).sort("window_start")
    return {
        row["window_start"]: (row["min_replicas"], Reason.model_validate_json(row["reason"]))
        for row in rows.iter_rows(named=True)
    }


def test_every_series_is_fitted_for_its_own_pools_quantile_and_the_groups_lead(fleet, now):
    """The lead is 90m + 1h + 30s, of chat-decode: 3 steps after a floor's own. code-8b has an hour less."""
    project, _ = fleet
    with open_store(project.store_path) as store:
        fits = read_fits(store, at=now)
    settings = {
        (row["workload_class"], row["metric"]): row["parameters"]
        for row in fits.filter(horizon="lead").iter_rows(named=True)
    }
    for (name, metric), parameters in settings.items():
        quantile = 0.9 if name != "code" and metric == "tokens_in" else 0.95
        window = 4 if name != "code" else 3
        assert f"lead window {window} steps, quantile {quantile:g}" in str(parameters), (name, metric)
    assert len(settings) == 6


def test_shares_are_of_the_metric_that_a_pool_is_planned_on(fleet, now):
    project, _ = fleet
    with open_store(project.store_path) as store:
        shares = read_pool_shares(store, at=now)
    assert set(shares.select("pool", "metric").iter_rows()) == {
        ("chat-prefill", "tokens_in"),
        ("chat-decode", "tokens_out"),
        ("code-8b", "tokens_in"),
        ("code-8b", "tokens_out"),
    }


def test_floors_are_fresh_recompute_and_name_the_partner(fleet, now):
    project, ran = fleet
    assert ran["plan"].result.rungs == dict.fromkeys(("chat-decode", "chat-prefill", "code-8b"), "fresh")
    for pool, partner, binding in (
        ("chat-prefill", "chat-decode", "tokens_in"),
        ("chat-decode", "chat-prefill", "tokens_out"),
    ):
        for floor, reason in _reasons(project, pool, now).values():
            assert recompute(reason, project.config.pools[pool]) == floor
            assert (reason.partners, reason.binding, reason.lead_s) == ((partner,), binding, 9030)
    assert _reasons(project, "code-8b", now)[now][1].partners == ()


def test_the_calendar_holds_in_local_time_with_its_lead(fleet, now):
    """Now is 09:00 UTC. Works is 10:00 to 11:00 UTC in November; the evening's 18:00 UTC is asked for from 15:00 on,
    whose window and lead reach to 18:30."""
    project, ran = fleet
    floors = {at.hour: floor for at, (floor, _) in _reasons(project, "chat-decode", now).items()}
    assert floors[10] == 0
    assert [hour for hour in range(9, 21) if floors[hour] >= 50] == [15, 16, 17, 18]
    [short] = (one for one in ran["plan"].result.shortfalls if one.pool == "chat-decode")
    assert (short.start, short.end, short.rules) == (now + HOUR, now + 2 * HOUR, ("ceiling",))
    assert short.replicas > 0
    schedule = read_schedule(project.output / "schedule.json")
    assert schedule.admission == ran["plan"].result.admission
    # Prefill is there, and nothing of the classes can be served without decode.
    for name in project.config.classes_of("chat-decode"):
        [one] = schedule.admission[name]
        assert (one.start, one.end, one.share, one.tokens_in_per_s) == (now + HOUR, now + 2 * HOUR, 0, 0)
    works = next(window for window in schedule.pools["chat-decode"].windows if window.start.hour == 10)
    assert (works.min_replicas, works.reason.clamped) == (0, "ceiling")
    assert works.reason.adjustments[-1].name == "works"
    said = explain(works, pool_name="chat-decode", pool=project.config.pools["chat-decode"])
    assert "the most that works allows" in said
    assert "chat-prefill: planned together" in said


def test_manifests_follow_the_maintenance_below_bounds_min(fleet, now):
    project, _ = fleet
    schedule = read_schedule(project.output / "schedule.json")
    folder = project.base / "manifests"
    write_manifests(schedule, project.config, folder, now + HOUR)
    keda = yaml.safe_load((folder / "keda/chat-decode.yaml").read_text())
    hpa = yaml.safe_load((folder / "hpa/chat-decode.yaml").read_text())
    assert (keda["spec"]["minReplicaCount"], hpa["spec"]["minReplicas"]) == (0, 1)


def test_pages_show_both_pools_of_a_class_and_whose_lead_it_is(fleet):
    project, _ = fleet
    page = (project.output / "site" / "class-chat.html").read_text()
    assert 'served by <a href="pool-chat-prefill.html">chat-prefill</a> and <a href="pool-chat-decode.html">' in page
    prefill = (project.output / "site" / "pool-chat-prefill.html").read_text()
    assert "that of chat-decode" in prefill
    decode = (project.output / "site" / "pool-chat-decode.html").read_text()
    assert "ceiling works" in decode
    assert "By the clock: evening: every day 19:00 to 20:00 Europe/Berlin, minimum 50; works: every day" in decode


def test_accuracy_is_judged_at_the_quantile_of_each_pool(fleet, live, now):
    """Tokens in at 0.9, tokens out at 0.95, over the lead of the group."""
    project, _ = fleet
    later = now + 5 * HOUR
    live(project, later, "ingest", "evaluate")
    series, _ = read_series(project, as_of=later)
    with open_store(project.store_path) as store:
        judged = read_accuracy(store, at=later).filter(model="published", horizon="lead", workload_class="chat")
        forecasts = read_forecasts(store, start=now, end=later)
    for metric, quantile in ((Metric.TOKENS_IN, 0.9), (Metric.TOKENS_OUT, 0.95)):
        at = dict.fromkeys(series, quantile)
        lead = dict.fromkeys(project.config.classes, project.config.lead_steps("chat-decode") * HOUR)
        expected = evaluate(forecasts, series, lead=lead, quantile=at)
        wanted = expected.filter(model="published", horizon="lead", workload_class="chat", metric=metric)
        assert judged.filter(metric=metric)["pinball"].to_list() == pytest.approx(wanted["pinball"].to_list())
        assert judged.filter(metric=metric).height == 1
