"""Ready replicas and waiting requests are read from the engines, once each, and held against the capacity."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import yaml

from pipelines.cli.check import examine, say_examined
from pipelines.project import load_project
from pipelines.stages.ingest import ingest
from pipelines.stages.load import history_of, read_loads
from scaling.calibration.history import calibrate_history
from store.connection import open_store
from store.findings import read_findings
from store.pool_load import read_pool_load

pytestmark = pytest.mark.server

T0 = datetime(2025, 3, 4, tzinfo=UTC)
HOURS = 6
NOW = T0 + timedelta(hours=HOURS)
STEP = timedelta(minutes=5)
C_IN, C_OUT = 5000, 1000


def load_at(t):
    """Every hour 20 minutes at half of what a replica can, 20 with a queue of 20 requests, 20 at 0.3."""
    return (0.5, 1.0, 0.3)[t % 3600 // 1200]


def engine(pod, *, since=0, engines=1, model="m", address=1, **more):
    """A replica's samples every 30 s: its gauge by engine, and its counters."""
    total = 0.0
    at = round(T0.timestamp())
    labels = {"model_name": model, "namespace": "llm", "instance": f"10.0.0.{address}:8000", **more}
    if pod is not None:
        labels["pod"] = pod
    for t in range(since, HOURS * 3600 + 1, 30):
        load = load_at(max(t - 1, 0))
        inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
        for one in range(engines):
            waiting = 20 / engines if load == 1 else 0
            yield "vllm:num_requests_waiting", f'{inner},engine="{one}"', waiting, at + t
        yield "vllm:prompt_tokens_total", inner, total * C_IN, at + t
        yield "vllm:generation_tokens_total", inner, total * C_OUT, at + t
        total += 30 * load_at(t)


SAMPLES = [
    *engine("chat-a", engines=2, prometheus="x"),
    *engine("chat-b", prometheus="x", address=2),
    *engine("chat-b", prometheus="y", address=2),
    *engine(None, address=3, prometheus="x"),
    *engine("chat-c", since=3 * 3600 + 600, address=4, prometheus="x"),
    *engine("other-a", model="other", address=5, prometheus="x"),
]
SAMPLES += [
    ("kube_deployment_status_replicas_ready", f'namespace="llm",deployment="{name}"', 7, round(T0.timestamp()) + t)
    for name in ("chat-70b", "other")
    for t in range(0, HOURS * 3600 + 1, 30)
]


@pytest.fixture(scope="module", params=["victoria_metrics", "prometheus"])
def url(request, tmp_path_factory, tools):
    folder = tmp_path_factory.mktemp("server")
    if request.param == "victoria_metrics":
        with tools.victoria_metrics(folder) as url:
            text = "\n".join(f"{name}{{{labels}}} {value} {at * 1000}" for name, labels, value, at in SAMPLES)
            httpx.post(f"{url}/api/v1/import/prometheus", content=text + "\n").raise_for_status()
            httpx.get(f"{url}/internal/force_flush").raise_for_status()
            yield url
        return
    tools.needs("prometheus", "promtool")
    lines = [f"{name}{{{labels}}} {value} {at}" for name, labels, value, at in sorted(SAMPLES, key=lambda s: s[0])]
    (folder / "load.om").write_text("\n".join(lines) + "\n# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "--quiet", "openmetrics"]
    subprocess.run([*command, str(folder / "load.om"), str(folder / "data")], check=True, capture_output=True)
    with tools.prometheus(folder) as url:
        yield url


@pytest.fixture
def project(tmp_path):
    def make(url, *, factor=1.0, **measure):
        pool = {
            "gpu": {"type": "H100"},
            "capacity": {
                "prefill_tokens_per_s": factor * C_IN,
                "decode_tokens_per_s": factor * C_OUT,
                "measure": {"source": "prod", **measure},
            },
            "startup": {"p90": "4m"},
            "bounds": {"min": 1, "max": 40},
        }
        source = {"name": "prod", "kind": "prometheus", "url": url, "scrape_interval": "30s", "timeout": "5s"}
        config = {
            "sources": [source | {"history": f"{HOURS}h"}],
            "pools": {"chat-70b": pool},
            "classes": {"chat": {"pools": ["chat-70b"], "match": {"model_name": "m"}}},
        }
        (tmp_path / "floorcast.yaml").write_text(yaml.safe_dump(config))
        return load_project(tmp_path / "floorcast.yaml", environment={})

    return make


def stored(project):
    with open_store(project.store_path) as store:
        rows = read_pool_load(store, "chat-70b", start=T0, end=NOW)
    columns = rows.select("step_start", "ready_min", "ready_max", "waiting_requests").rows()
    return {round((at - T0) / STEP): tuple(figures) for at, *figures in columns}


def test_replicas_count_once_whatever_engines_and_scrapers_they_have(url, project):
    ours = project(url)
    read, failed = read_loads(ours, NOW)
    assert (set(read), failed) == ({"chat-70b"}, {})
    found = stored(ours)
    # Before chat-c comes, in the third step of the fourth hour, there are two pods and an instance without one.
    assert found[1][:2] == (3, 3)
    assert found[45][:2] == (4, 4)
    assert [found[step][2] for step in (2, 6, 10)] == pytest.approx([0, 60, 0])
    assert found[54][2] == pytest.approx(80)


def test_read_in_pieces_it_is_the_same(url, project):
    ours = project(url)
    for minutes in (47, 112, 240):
        read_loads(ours, T0 + timedelta(minutes=minutes))
    read, _ = read_loads(ours, NOW)
    # From 4:00 less the allowed lateness of 15 minutes to 6:00.
    assert read["chat-70b"] == 27
    pieces = stored(ours)
    ours.store_path.unlink()
    read_loads(ours, NOW)
    assert stored(ours) == pieces


def test_queries_of_the_users_own_stand_in_for_both(url, project):
    ours = project(
        url,
        ready_replicas='sum(kube_deployment_status_replicas_ready{namespace="llm",deployment="chat-70b"})',
        waiting_requests="0 * sum(vllm:num_requests_waiting) + 3",
    )
    assert read_loads(ours, NOW)[1] == {}
    assert set(stored(ours).values()) == {(7, 7, 3.0)}


@pytest.mark.parametrize(
    ("measure", "why"),
    [
        ({"ready_replicas": "kube_deployment_status_replicas_ready"}, "the query gives 2 series"),
        ({"waiting_requests": "-1 - sum(vllm:num_requests_waiting)"}, "the query gives less than 0"),
        ({"waiting_requests": "sum("}, "400"),
    ],
)
def test_a_query_that_gives_something_else_is_told_and_takes_nothing_away(url, project, measure, why):
    read_loads(project(url), NOW)
    before = stored(project(url))
    read, failed = read_loads(project(url, **measure), NOW)
    assert read == {}
    assert why in failed["chat-70b"]
    assert stored(project(url)) == before


def test_engines_that_say_nothing_are_not_zero(url, project):
    ours = project(url, match={"model_name": "gone"})
    assert read_loads(ours, NOW) == ({"chat-70b": 0}, {})
    assert stored(ours) == {}


def test_a_capacity_that_production_contradicts_is_told_with_what_it_is(url, project, capsys):
    ours = project(url, factor=2.0)
    done = ingest(ours, NOW)
    assert done.loads_failed == {}
    with open_store(ours.store_path) as store:
        (row,) = read_findings(store).filter(kind="capacity_contradicted").to_dicts()
    assert (row["pool"], row["severity"], row["masked"]) == ("chat-70b", "warning", False)
    evidence = json.loads(row["evidence"])
    assert (evidence["capacity_is"], evidence["waiting_per_replica"]) == ("too high", pytest.approx(20, abs=1))
    assert evidence["load"] == pytest.approx(0.5, abs=0.02)

    told = examine(ours, NOW)
    assert told["capacity_contradicted"] == {"chat-70b": [evidence]}
    say_examined(told, ours)
    assert "capacity contradicted: for 2 h requests waited, 20 a replica" in capsys.readouterr().out
    steps = history_of(ours, "chat-70b", NOW)
    done = calibrate_history(steps, ours.config.pools["chat-70b"], step=STEP)
    assert done.fitted.prefill_tokens_per_s == pytest.approx(C_IN, rel=0.02)
    assert done.fitted.decode_tokens_per_s == pytest.approx(C_OUT, rel=0.02)
    assert [edge.onsets for edge in done.edges] == [HOURS]


def test_a_capacity_that_agrees_is_not_contradicted_and_a_later_ingest_forgets(url, project):
    ingest(project(url, factor=2.0), NOW)
    ours = project(url)
    ingest(ours, NOW)
    with open_store(ours.store_path) as store:
        assert read_findings(store).filter(kind="capacity_contradicted").is_empty()
