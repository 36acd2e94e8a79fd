"""What is exported, that it is documented, and that a real Prometheus answers the rules, panels and queries on it."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject, TriggerAuthentication
from prometheus_client.parser import text_string_to_metric_families

from floorcast.types import FloorSchedule
from pipelines.publishers.accuracy import ACCURACY_FILE, write_accuracy_file
from pipelines.publishers.schedule import floor_due
from pipelines.service.board import Board, Publication
from pipelines.service.metrics import catalogue

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "floorcast.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
SERVERS = runpy.run_path(str(ROOT / "tests" / "pipelines" / "prometheus" / "conftest.py"))

Exported = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exported(served: Any) -> Exported:
    """Every sample by its name and labels."""
    text = served.get("/metrics").text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_figures_are_those_of_the_board(served: Any, schedule: FloorSchedule) -> None:
    found, pool = exported(served), (("pool", "chat-70b"),)
    window = floor_due(schedule, "chat-70b", served.board.now)
    assert found["floorcast_floor_replicas", pool] == window.min_replicas
    assert found["floorcast_desired_replicas", pool] == window.min_replicas + 2
    assert found["floorcast_required_replicas", pool] == window.reason.required_replicas
    demand = "floorcast_forecast_tokens_per_second"
    at = {
        dict(labels)["quantile"]: value
        for (name, labels), value in found.items()
        if name == demand and dict(labels)["pool"] == "chat-70b"
    }
    assert at == {"0.5": window.reason.median_tokens_per_s, "0.95": window.reason.demand_tokens_per_s}
    short = floor_due(schedule, "code-8b", served.board.now).reason.shortfall_replicas
    assert found["floorcast_shortfall_replicas", (("pool", "code-8b"),)] == short > 0
    assert found["floorcast_floor_source_info", (("pool", "chat-70b"), ("source", "schedule"))] == 1
    assert found["floorcast_signals_lost", pool] == 1
    assert found["floorcast_floor_rung", pool] == 1
    assert found["floorcast_publication_version", ()] == 42
    assert found["floorcast_publication_age_seconds", ()] == 360
    expiry = found["floorcast_publication_expiry_timestamp_seconds", ()]
    assert expiry - found["floorcast_publication_issued_timestamp_seconds", ()] == 7200
    assert found["floorcast_source_up", (("source", "edge"),)] == 0
    assert found["floorcast_publisher_outcomes", (("did", "failed"), ("publisher", "kubernetes"))] == 1


def test_ticks_are_counted_into_the_histogram(served: Any) -> None:
    """Three ticks of 20, 30 and 40 ms: one is within 25 ms, all are within 50 ms, 90 ms together."""
    found = exported(served)
    bucket = "floorcast_tick_duration_seconds_bucket"
    assert [found[bucket, (("le", le),)] for le in ("0.01", "0.025", "0.05", "+Inf")] == [0, 1, 3, 3]
    assert found["floorcast_tick_duration_seconds_sum", ()] == pytest.approx(0.09)
    assert found["floorcast_tick_duration_seconds_count", ()] == found["floorcast_ticks_total", ()] == 3


def test_what_is_not_known_is_absent(served: Any) -> None:
    names = exported(served)
    assert ("floorcast_replicas", (("pool", "chat-70b"), ("state", "draining"))) not in names
    assert ("floorcast_replicas", (("pool", "chat-70b"), ("state", "ready"))) in names
    assert ("floorcast_source_last_success_timestamp_seconds", (("source", "edge"),)) not in names
    assert "floorcast_gate_open" not in {name for name, _ in names}
    unplanned = {pool: replace(each, window=None) for pool, each in served.board.decisions.items()}
    served.board = replace(served.board, publication=Publication(None, "missing"), decisions=unplanned)
    left = exported(served)
    gone = {name for name, _ in names} - {name for name, _ in left}
    assert gone == {
        "floorcast_required_replicas",
        "floorcast_forecast_tokens_per_second",
        "floorcast_shortfall_replicas",
        "floorcast_floor_rung",
        "floorcast_publication_version",
        "floorcast_publication_issued_timestamp_seconds",
        "floorcast_publication_expiry_timestamp_seconds",
        "floorcast_publication_age_seconds",
    }
    assert left["floorcast_publication_valid", ()] == 0
    assert left["floorcast_publication_fault", ()] == 1


def test_accuracy_is_that_of_the_last_evaluation(served: Any) -> None:
    rows = {"workload_class": ["chat"], "metric": ["tokens_out"], "horizon": ["lead"], "steps": [288], "wape": [0.08]}
    frame = pl.DataFrame(rows | {"calibration": [None]}, schema_overrides={"calibration": pl.Float64})
    folder, later = served.site.parent, replace(served.board, ticks=served.board.ticks + 1)
    labels = (("horizon", "lead"), ("metric", "tokens_out"), ("workload_class", "chat"))
    write_accuracy_file(folder, served.board.now, frame)
    served.board = later
    found = exported(served)
    assert found["floorcast_forecast_wape_ratio", labels] == 0.08
    assert found["floorcast_forecast_judged_timestamp_seconds", ()] == served.board.now.timestamp()
    assert "floorcast_forecast_calibration_ratio" not in {name for name, _ in found}
    (folder / ACCURACY_FILE).write_text("{")
    served.board = replace(later, ticks=later.ticks + 1)
    assert "floorcast_forecast_wape_ratio" not in {name for name, _ in exported(served)}
    (folder / ACCURACY_FILE).unlink()


def test_every_metric_is_documented_and_every_documented_one_exported(served: Any, board: Board) -> None:
    schedule = board.publication.schedule
    assert schedule is not None
    pools = {name: pool.model_copy(update={"gate": "open"}) for name, pool in schedule.pools.items()}
    served.board = replace(board, publication=Publication(schedule.model_copy(update={"pools": pools})))
    rows = {"workload_class": ["chat"], "metric": ["tokens_out"], "horizon": ["lead"], "steps": [1], "wape": [0.1]}
    write_accuracy_file(served.site.parent, board.now, pl.DataFrame(rows | {"calibration": [0.9]}))
    names = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in exported(served)}
    ours = {name for name in names if name.startswith("floorcast_")}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert ours == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {name for name, *_ in catalogue()}
    assert {name.partition("_")[0] for name in names - ours} == {"process"}
    (served.site.parent / ACCURACY_FILE).unlink()


def test_units_are_in_the_names() -> None:
    for name, kind, *_ in catalogue():
        assert re.fullmatch(r"floorcast_[a-z0-9_]+", name)
        assert (kind == "counter") == name.endswith("_total")


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bfloorcast_\w+", re.sub(r"\{[^}]*\}", "", expression)))


def test_rules_panels_and_queries_name_metrics_that_there_are() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    expressions = [rule["expr"] for rule in rules]
    expressions += [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    expressions += [variable.get("definition", "") for variable in DASHBOARD["templating"]["list"]]
    expressions += [note["expr"] for note in DASHBOARD["annotations"]["list"]]
    expressions.append(keda("keda-prometheus.yaml")[0]["spec"]["triggers"][0]["metadata"]["query"])
    known = {name + part for name, kind, *_ in catalogue() for part in ("", "_bucket" if kind == "histogram" else "")}
    assert set().union(*map(metrics_in, expressions)) <= known


def keda(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "prometheus" / name).read_text()))


def test_scaled_objects_are_valid_and_take_nothing_for_an_error_and_not_for_zero() -> None:
    for document in keda("keda-prometheus.yaml") + keda("keda-metrics-api.yaml"):
        kind = {"ScaledObject": ScaledObject, "TriggerAuthentication": TriggerAuthentication}[document["kind"]]
        kind.model_validate(document)
        if document["kind"] == "ScaledObject":
            assert document["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"
    assert keda("keda-prometheus.yaml")[0]["spec"]["triggers"][0]["metadata"]["ignoreNullValues"] == "false"


@pytest.mark.server
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")])
def test_alert_rules_are_right_by_promtool(command: tuple[str, ...]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    done = subprocess.run(
        ["promtool", *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_to_fire_and_to_stay_silent() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules}
    assert names == {case["alertname"] for case in cases if case.get("exp_alerts")}
    assert names == {case["alertname"] for case in cases if not case.get("exp_alerts")}


@pytest.fixture(scope="module")
def prometheus(
    serving: Any, board: Board, tmp_path_factory: pytest.TempPathFactory, until: Callable[..., None]
) -> Iterator[str]:
    """A Prometheus that has scraped a service for a few seconds while it ticked, with our alert rules loaded."""
    folder, site = tmp_path_factory.mktemp("prometheus"), tmp_path_factory.mktemp("site")
    shift = time.time() - board.now.timestamp()
    schedule = board.publication.schedule
    assert schedule is not None
    moved = {name: getattr(schedule, name) + timedelta(seconds=shift) for name in ("issued_at", "valid_until")}
    board = replace(board, publication=Publication(schedule.model_copy(update=moved)))
    with serving(board, site) as running:
        scrape = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())
        scrape["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "900ms"}
        scrape["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{running.port}"]
        scrape["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yaml")]
        with SERVERS["run_prometheus"](folder, yaml.safe_dump(scrape)) as url:

            def scraped() -> bool:
                ticks, times = running.board.ticks + 1, running.board.tick_times.plus(0.03)
                running.board = replace(running.board, now=datetime.now(UTC), ticks=ticks, tick_times=times)
                time.sleep(0.2)
                found = ask(
                    url, "count_over_time(floorcast_ticks_total[1m]) >= 4 and rate(floorcast_ticks_total[1m]) > 0"
                )
                return bool(found)

            until(scraped)
            yield url


def ask(url: str, query: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False, timeout=10)
    assert answer.status_code == 200, (query, answer.text)
    result: list[dict[str, Any]] = answer.json()["data"]["result"]
    return result


def filled(expression: str) -> str:
    """With the dashboard's variables as a user would choose them."""
    chosen = {"$job": "floorcast", "$pool": "chat-70b|code-8b", "$__rate_interval": "1m"}
    for variable, value in chosen.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.server
@pytest.mark.parametrize("title", PANELS)
def test_each_query_of_each_panel_has_an_answer(prometheus: str, title: str) -> None:
    for target in PANELS[title]["targets"]:
        query = filled(target["expr"])
        found = ask(prometheus, query)
        assert found, query
        assert all(each["value"][1] != "NaN" for each in found), query


@pytest.mark.server
def test_kedas_query_gives_the_floor_as_one_number_and_nothing_without_a_fresh_tick(
    prometheus: str, schedule: FloorSchedule, board: Board
) -> None:
    query = keda("keda-prometheus.yaml")[0]["spec"]["triggers"][0]["metadata"]["query"]
    (found,) = ask(prometheus, query)
    assert found["value"][1] == str(floor_due(schedule, "chat-70b", board.now).min_replicas)
    assert ask(prometheus, query.replace("time() -", "1000 + time() -")) == []
    assert ask(prometheus, query.replace("> time()", "> 1e5 + time()")) == []


@pytest.mark.server
def test_the_alerts_that_should_wait_to_fire_are_those_of_the_board(prometheus: str) -> None:
    rules = httpx.get(f"{prometheus}/api/v1/rules", trust_env=False).json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    true = {rule["name"] for rule in rules if ask(prometheus, rule["query"])}
    assert true == {
        "FloorcastSignalsLost",
        "FloorcastFloorShort",
        "FloorcastSourceFailing",
        "FloorcastPublisherFailing",
    }
