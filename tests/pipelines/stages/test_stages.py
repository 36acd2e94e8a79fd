"""Each stage on its own, against a real store and real files."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest

from floorcast.columns import Metric
from floorcast.errors import DataError, ForecastError, PublishError, StoreError
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE, STAGES, run_stage
from store.accuracy import read_accuracy
from store.connection import open_store
from store.demand import demand_extent, read_demand
from store.fits import read_fits
from store.forecasts import read_forecast
from store.rejects import read_rejects

HOUR = timedelta(hours=1)
SERIES = {(name, metric) for name in ("agent", "chat", "code") for metric in Metric}


def execute(project, sql):
    with open_store(project.store_path) as store:
        store.execute(sql)


def test_ingest_twice_leaves_what_once_leaves(project, live, now, dump):
    done = live(project, now, "ingest")["ingest"].result
    once = dump(project)
    live(project, now, "ingest")
    assert dump(project) == once
    assert len(once["demand"]) == 3 * 12 * 24 == done.sources[0].steps


def test_ingest_reads_up_to_now_and_leaves_the_running_step_out(project, live, now):
    live(project, now + timedelta(minutes=50), "ingest")
    with open_store(project.store_path) as store:
        assert set(demand_extent(store)["last_step"]) == {now - HOUR}


def test_ingest_replaces_the_rejects_of_a_source_that_was_mended(project, live, now, trace):
    bad = pl.col("time").is_between(now - HOUR, now - timedelta(minutes=40)) & (pl.col("class") == "chat")
    broken = trace.with_columns(tokens_in=pl.when(bad).then(None).otherwise("tokens_in"))
    broken.write_parquet(project.base / "trace.parquet")
    done = live(project, now, "ingest")["ingest"].result.sources[0]
    with open_store(project.store_path) as store:
        assert read_rejects(store)["reason"].to_list() == ["missing_tokens"] * 5
        assert read_demand(store, start=now - HOUR, classes=["chat"])["observed_fraction"].to_list() == [7 / 12]
    assert done.rejected == {"missing_tokens": 5}
    trace.write_parquet(project.base / "trace.parquet")
    live(project, now, "ingest")
    with open_store(project.store_path) as store:
        assert read_rejects(store).is_empty()
        assert read_demand(store, start=now - HOUR, classes=["chat"])["observed_fraction"].to_list() == [1.0]


def test_ingest_stores_the_other_sources_where_one_cannot_be_read(project, live, now, reconfigure):
    """One team's missing export must not age the forecasts of all."""
    broken = "  - {name: gone, kind: trace, format: azure, path: gone.csv, class: chat}\n  - name: history"
    project = reconfigure(project, "  - name: history", broken)
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        live(project, now, "ingest")
    with open_store(project.store_path) as store:
        assert set(demand_extent(store)["last_step"]) == {now - HOUR}


def test_ingest_names_every_source_that_cannot_be_read(project, live, now, reconfigure):
    broken = "".join(
        f"  - {{name: {name}, kind: trace, format: azure, path: {name}.csv, class: chat}}\n" for name in ("a1", "b2")
    )
    with pytest.raises(DataError) as raised:
        live(reconfigure(project, "  - name: history", f"{broken}  - name: history"), now, "ingest")
    assert "a1.csv: no such file" in str(raised.value)
    assert "b2.csv: no such file" in str(raised.value)


def test_ingest_without_sources_says_what_to_do(project, live, now):
    none = replace(project, config=project.config.model_copy(update={"sources": ()}))
    with pytest.raises(DataError, match="no sources are configured"):
        live(none, now, "ingest")


def test_fit_gives_every_series_a_model_for_both_horizons(published, now):
    with open_store(published.store_path) as store:
        fits = read_fits(store, at=now)
    assert set(fits.select("workload_class", "metric").iter_rows()) == SERIES
    assert set(fits["cutoff"]) == {now}
    assert fits["horizon"].value_counts().sort("horizon").rows() == [("lead", 6), ("outlook", 6)]
    assert "none" not in fits["model"].to_list()


def test_fit_without_any_demand_says_what_to_do(project, live, now):
    with pytest.raises(ForecastError, match="no demand is stored for any configured class") as raised:
        live(project, now, "fit")
    assert "floorcast ingest" in raised.value.remedy


def test_a_young_fit_is_kept(published, live, now):
    live(published, now + HOUR, "ingest")
    done = CYCLE["fit"](published, now + HOUR)
    assert (done.kept, done.chosen) == (6, ())
    with open_store(published.store_path) as store:
        assert set(read_fits(store, at=now + HOUR)["cutoff"]) == {now}


def test_an_old_fit_is_made_anew_only_where_data_came_since(published, live, now, trace, reconfigure):
    """chat and agent stopped reporting: fitting the same data again would give the same fit."""
    project = reconfigure(published, "step: 1h", "step: 1h\nrefit_every: 2h")
    trace.filter((pl.col("time") < now) | (pl.col("class") == "code")).write_parquet(project.base / "trace.parquet")
    live(project, now + 2 * HOUR, "ingest")
    done = CYCLE["fit"](project, now + 2 * HOUR)
    assert done.kept == 4
    assert {(one.workload_class, one.metric) for one in done.chosen} == {("code", metric) for metric in Metric}
    with open_store(project.store_path) as store:
        fits = read_fits(store, at=now + 2 * HOUR)
    assert set(fits.select("workload_class", "cutoff").iter_rows()) == {
        ("agent", now),
        ("chat", now),
        ("code", now + 2 * HOUR),
    }


def test_a_class_that_is_new_is_fitted_and_no_other(published, live, now, trace, reconfigure):
    renamed = trace.with_columns(pl.col("class").replace("code", "codegen"))
    renamed.write_parquet(published.base / "trace.parquet")
    project = reconfigure(published, "  code: {kind", "  codegen: {kind")
    live(project, now, "ingest")
    done = CYCLE["fit"](project, now)
    assert {one.workload_class for one in done.chosen} == {"codegen"}
    assert done.kept == 4
    # The class that is gone keeps its fit and its rows, and is forecast no more.
    forecast = live(project, now, "forecast")["forecast"].result
    assert (forecast.series, forecast.failed) == (6, {})


def test_one_series_that_fails_costs_no_other_its_forecast(published, live, now):
    execute(published, "UPDATE fits SET model = 'gone' WHERE workload_class = 'chat' AND metric = 'tokens_in'")
    execute(published, "UPDATE fits SET parameters = '{' WHERE workload_class = 'code' AND metric = 'tokens_out'")
    live(published, now + HOUR, "ingest")
    done = live(published, now + HOUR, "forecast")["forecast"].result
    assert set(done.failed) == {"chat tokens_in", "code tokens_out"}
    assert "'gone' is not known" in done.failed["chat tokens_in"]
    assert "JSONDecodeError" in done.failed["code tokens_out"]
    with open_store(published.store_path) as store:
        newest = read_forecast(store, at=now + HOUR)
    made = newest.filter(cutoff=now + HOUR).select("workload_class", "metric").unique()
    assert set(made.iter_rows()) == SERIES - {("chat", "tokens_in"), ("code", "tokens_out")}
    # The others' older forecast still carries the plan.
    assert live(published, now + HOUR, "plan")["plan"].result.rungs == {"chat-70b": "fresh", "code-8b": "fresh"}


def test_forecast_before_any_fit_says_what_to_do(project, live, now):
    live(project, now, "ingest")
    with pytest.raises(ForecastError, match="no model was ever fitted") as raised:
        live(project, now, "forecast")
    assert raised.value.remedy == "run `floorcast fit`"
    assert raised.value.exit_code == 5


def test_plan_covers_every_pool_and_step_of_the_horizon(published, live, now, dump):
    before = dump(published)
    done = live(published, now, "plan")["plan"].result
    assert (done.pools, done.windows, done.rungs) == (2, 24, {"chat-70b": "fresh", "code-8b": "fresh"})
    assert dump(published) == before


def test_plan_says_by_how_much_a_pool_falls_short(published, live, now, reconfigure):
    project = reconfigure(published, "bounds: {min: 1, max: 60}\n    fallback_replicas: 30", "bounds: {min: 1, max: 5}")
    done = live(project, now, "plan")["plan"].result
    spans = [one for one in done.shortfalls if one.pool == "chat-70b"]
    assert all(one.rules == ("max_replicas",) and one.replicas > 0 for one in spans)
    assert all(before.end < after.start for before, after in pairwise(spans))
    most = max(one.replicas for one in spans)
    assert f"chat-70b short by {most} (max replicas) at " in done.summary


def test_publishing_a_step_twice_leaves_one_version_and_the_same_bytes(published, live, now, dump):
    before, files = dump(published), contents(published)
    again = live(published, now + timedelta(minutes=59), "publish")["publish"].result
    assert again.version == 1
    assert dump(published) == before
    assert contents(published) == files


def test_changed_floors_for_the_same_step_are_the_next_version(published, live, now, reconfigure):
    first = read_schedule(published.output / "schedule.json")
    project = reconfigure(
        published, "bounds: {min: 1, max: 60}\n    fallback_replicas: 30", "bounds: {min: 40, max: 60}"
    )
    done = live(project, now, "plan", "publish")["publish"].result
    second = read_schedule(project.output / "schedule.json")
    assert (first.version, second.version, done.version) == (1, 2, 2)
    assert first.issued_at == second.issued_at
    assert done.due["chat-70b"] == 40
    assert read_schedule(project.output / "schedules" / "v000001.json") == first


@pytest.mark.parametrize(
    ("old", "new"),
    [("mode: advisory", "mode: apply"), ("horizon: 12h", "horizon: 12h\npublication: {valid_for: 5h}")],
)
def test_equal_floors_under_other_terms_are_the_next_version(published, live, now, reconfigure, old, new):
    project = reconfigure(published, old, new)
    assert live(project, now, "publish")["publish"].result.version == 2
    schedule = read_schedule(project.output / "schedule.json")
    assert (schedule.mode, schedule.valid_until - now) == (project.config.mode, project.config.publication.valid_for)


@pytest.mark.parametrize("lost", [["schedule.json"], ["schedule.json", "schedules/v000001.json"]])
def test_a_publication_cut_off_after_it_was_recorded_is_written_under_its_version(published, live, now, dump, lost):
    before, files = dump(published), contents(published)
    for name in lost:
        (published.output / name).unlink()
    assert live(published, now, "publish")["publish"].result.version == 1
    assert dump(published) == before
    assert contents(published) == files


def test_a_run_on_history_does_not_replace_a_later_publication(published, live, now):
    files = contents(published)
    live(published, now - HOUR, "fit", "forecast", "plan")
    with pytest.raises(PublishError, match=r"version 1, issued 2026-11-16T09:00:00Z, is later") as raised:
        live(published, now - HOUR, "publish")
    assert "output.dir" in raised.value.remedy
    assert contents(published) == files


def test_a_publication_from_the_future_does_not_block_todays(published, live, now):
    """Issued by a wrong clock: ten years ahead of the clock that this test runs by."""
    ahead = now + timedelta(days=3653)
    live(published, ahead, "plan", "publish")
    live(published, now + HOUR, "forecast", "plan")
    assert live(published, now + HOUR, "publish")["publish"].result.version == 3
    assert read_schedule(published.output / "schedule.json").issued_at == now + HOUR


def test_two_sources_of_one_class_and_step_are_refused_and_the_first_is_kept(project, now, reconfigure):
    second = "sources:\n  - {name: twin, kind: trace, format: generic, path: trace.parquet, row_interval: 5m, "
    second += (
        "max_tokens: 100000000, columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}}"
    )
    project = reconfigure(project, "sources:", second)
    with pytest.raises(DataError, match="sources twin and history both give class agent at") as raised:
        run_stage("ingest", STAGES["ingest"], project, now)
    assert "classes of its own" in raised.value.remedy
    with open_store(project.store_path) as store:
        assert read_demand(store)["source"].unique().to_list() == ["twin"]


def test_a_changed_step_is_refused_by_a_store_that_holds_another(published, now, reconfigure):
    project = reconfigure(published, "step: 1h", "step: 30m")
    for name in ("ingest", "fit", "plan"):
        with pytest.raises(StoreError, match="holds demand in steps of 1h, the configuration says 30m") as raised:
            run_stage(name, STAGES[name], project, now)
        assert "store.path" in raised.value.remedy


def test_a_changed_quantile_is_fitted_anew_and_not_forecast_from_the_old_fit(published, now, reconfigure):
    project = reconfigure(published, "fallback_replicas: 25", "fallback_replicas: 25\n    margin: {quantile: 0.9}")
    failed = run_stage("forecast", STAGES["forecast"], project, now).result.failed
    assert set(failed) == {"code tokens_in", "code tokens_out"}
    assert "quantile 0.95, now it is" in failed["code tokens_in"]
    again = run_stage("fit", CYCLE["fit"], project, now).result
    assert {one.workload_class for one in again.chosen} == {"code"}
    assert run_stage("forecast", STAGES["forecast"], project, now).result.failed == {}


def test_publishing_what_was_not_planned_says_what_to_do(published, live, now):
    files = contents(published)
    with pytest.raises(PublishError, match="no floors were planned for 2026-11-16T10:00:00Z") as raised:
        live(published, now + HOUR, "publish")
    assert "floorcast plan" in raised.value.remedy
    assert contents(published) == files


def test_evaluate_judges_what_has_been_observed_since(published, live, now):
    assert live(published, now, "evaluate")["evaluate"].result.judged_steps == 0
    live(published, now + 3 * HOUR, "ingest")
    done = live(published, now + 3 * HOUR, "evaluate")["evaluate"].result
    # The lead window, three steps judged as one, of six series.
    assert published.config.lead_steps("chat-70b") == published.config.lead_steps("code-8b") == 3
    assert done.judged_steps == 6
    assert set(done.lead_wape) == {" ".join(key) for key in SERIES}
    assert all(0 < wape < 0.5 for wape in done.lead_wape.values())
    with open_store(published.store_path) as store:
        accuracy = read_accuracy(store, at=now + 3 * HOUR)
    assert set(accuracy["model"]) == {"published", "last_value", "seasonal_naive"}


def test_evaluate_counts_what_was_forecast_from_data_that_changed_since(published, live, now, trace):
    changed = pl.col("time").is_between(now - 3 * HOUR, now - HOUR, closed="left") & (pl.col("class") == "chat")
    trace.with_columns(tokens_in=pl.when(changed).then(0.5 * pl.col("tokens_in")).otherwise("tokens_in")).write_parquet(
        published.base / "trace.parquet"
    )
    live(published, now + HOUR, "ingest", "forecast")
    live(published, now + 4 * HOUR, "ingest")
    done = live(published, now + 4 * HOUR, "evaluate")["evaluate"].result
    # Of six series the lead window and a step after it, and the lead window of the later forecast, from changed data.
    assert (done.judged_steps, done.judged_on_changed_data) == (18, 4)
    assert "18 forecast steps judged, 4 of them made from data that changed since" in done.summary


def test_dashboard_writes_a_page_for_each_pool_and_class(published, live, now):
    done = live(published, now, "dashboard")["dashboard"].result
    pages = {page.relative_to(published.site).name for page in published.site.glob("**/*.html")}
    assert done.page == published.site / "index.html"
    assert done.pages == len(pages) == 8
    assert "v1" in done.page.read_text() or "version 1" in done.page.read_text()


def test_the_overview_says_what_a_second_publication_changed(published, live, now):
    live(published, now, "dashboard")
    assert "Against version" not in (published.site / "index.html").read_text()
    live(published, now + HOUR, "ingest", "forecast", "plan", "publish", "dashboard")
    assert "Against version 1" in (published.site / "index.html").read_text()


def test_every_stage_is_recorded_with_what_it_said(published, now):
    with open_store(published.store_path) as store:
        runs = store.read("SELECT * FROM runs ORDER BY started_at")
    assert runs["run_id"].to_list() == [
        f"{kind}-20261116T090000Z" for kind in ("ingest", "fit", "forecast", "plan", "publish")
    ]
    assert set(runs["status"]) == {"succeeded"}
    assert set(runs["as_of"]) == {now}
    assert (runs["finished_at"] >= runs["started_at"]).all()
    said = dict(zip(runs["kind"], map(json.loads, runs["detail"]), strict=True))
    assert said["publish"]["version"] == 1
    assert said["forecast"]["failed"] == {}


@pytest.mark.parametrize("name", list(CYCLE))
def test_a_failing_stage_is_recorded_with_its_error_and_raised(published, now, name):
    def fails(_project, _now):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_stage(name, fails, published, now + HOUR)
    with open_store(published.store_path) as store:
        [run] = store.read(f"SELECT * FROM runs WHERE run_id = '{name}-20261116T100000Z'").to_dicts()
    assert run["status"] == "failed"
    assert run["finished_at"] is not None
    assert "No space left on device" in json.loads(run["detail"])["error"]


def test_two_runs_within_a_step_are_one(published, live, now):
    live(published, now + timedelta(minutes=10), "plan")
    live(published, now + timedelta(minutes=50), "plan")
    with open_store(published.store_path) as store:
        assert store.read("SELECT count(*) AS n FROM runs WHERE kind = 'plan'")["n"].to_list() == [1]


def contents(project):
    """Bytes by path of all that is published."""
    return {
        str(path.relative_to(project.output)): path.read_bytes()
        for path in sorted(project.output.rglob("*"))
        if path.is_file()
    }
