"""All publishers together: side by side, none in the way of another, recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError, PublishError
from floorcast.types import FloorSchedule
from pipelines.publishers.outcome import Wanted
from pipelines.publishers.record import read_record
from pipelines.publishers.run import PublisherRuns, publish_everywhere, run_publishers

NOW = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
POOLS = ("chat-70b", "long-decode", "long-prefill")

ConfigOf = Callable[..., Config]
PlannerOf = Callable[..., Any]


def want(pool: str, replicas: int) -> Wanted:
    return Wanted(pool=pool, replicas=replicas, floor=replicas, max_replicas=40, reason="because")


def entry(planner: Any, name: str, pool: str = "chat-70b", more: str = "") -> str:
    return f'{{kind: dynamo, name: {name}, url: "{planner.url}", pools: [{pool}], attempts: 1{more}}}'


@pytest.fixture
def schedule(schedule_of: Callable[..., FloorSchedule]) -> FloorSchedule:
    """Issued at 08:50, in force for two hours."""
    return schedule_of({pool: [(14, 10.9), (13, 10.0)] for pool in POOLS})


def test_one_that_fails_stops_no_other(planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path) -> None:
    bad, good = planner_of("agg", min_endpoint=2), planner_of("agg", min_endpoint=2)
    bad.answers = [(500, {"error": "oops"}, {})]
    config = config_of(entry(bad, "bad"), entry(good, "good"))
    outcomes = run_publishers(config, tmp_path, {"floor": [want("chat-70b", 14)]}, now=NOW)
    assert {one.publisher: one.did for one in outcomes} == {"bad": "failed", "good": "applied"}
    assert "the planner answered 500: oops" in outcomes[0].note
    assert good.minimums == {"min_endpoint": 14}
    assert set(read_record(tmp_path).outcomes) == set(outcomes)


def test_one_that_hangs_is_given_up_at_its_deadline_and_not_begun_again_meanwhile(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path
) -> None:
    """The head of its first answer takes 3 s to come, byte by byte, and the run is to be done in 1 s. The other is not
    held up, and a newer floor is not overtaken by the older one."""
    slow, good = planner_of("agg", min_endpoint=2), planner_of("agg", min_endpoint=2)
    slow.answers = ["drip"]
    config = config_of(
        entry(slow, "slow", more=", timeout: 1s, deadline: 1s").replace("attempts: 1", "attempts: 2"),
        entry(good, "good"),
    )
    runs = PublisherRuns(config, tmp_path)
    first = runs.run({"floor": [want("chat-70b", 14)]}, now=NOW)
    assert {one.publisher: one.did for one in first.outcomes} == {"slow": "failed", "good": "applied"}
    assert "not done within 1s" in first.outcomes[0].note
    assert "slow" in runs.due({"floor": [want("chat-70b", 14)]}, now=NOW + timedelta(seconds=30))
    runs = PublisherRuns(config, tmp_path, label="slow", before=runs)
    runs.run({"floor": [want("chat-70b", 15)]}, now=NOW)

    def settles(replicas: int) -> bool:
        run = runs.run({"floor": [want("chat-70b", replicas)]}, now=NOW)
        return run.outcomes[-1].did in ("applied", "unchanged")

    # The earlier run ends some time. Whenever it does, what is wanted last is what is there at last, and each change is
    # to something newer.
    wait_for(lambda: settles(16))
    assert slow.minimums == {"min_endpoint": 16}
    changes = [body["min_endpoint"] for method, _, body in slow.requests if method == "PATCH"]
    assert changes == sorted(changes), "an older floor overtook a newer one"
    assert changes[0] == 14
    assert "slow" not in runs.due({"floor": [want("chat-70b", 16)]}, now=NOW)
    # What the earlier runs set counts as ours.
    wait_for(lambda: settles(5))
    assert slow.minimums == {"min_endpoint": 5}


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_it_is_run_for_what_is_new_after_a_failure_and_every_resync(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    runs = PublisherRuns(config_of(entry(planner, "one", more=", resync: 5m")), tmp_path)
    fourteen = {"floor": [want("chat-70b", 14), want("long-decode", 1)]}

    def due(wanted: Any, **later: float) -> tuple[str, ...]:
        return runs.due(wanted, now=NOW + timedelta(**later))

    assert due(fourteen) == ("one",)
    runs.run(fourteen, now=NOW)
    assert due(fourteen, seconds=299) == ()
    assert due(fourteen, minutes=5) == ("one",)
    assert due({"floor": [want("chat-70b", 15), want("long-decode", 1)]}, seconds=15) == ("one",)
    assert due({"floor": [want("chat-70b", 14), want("long-decode", 2)]}, seconds=15) == ()
    assert due(fourteen, seconds=-60) == ("one",), "a clock that was set back must not silence it"
    planner.answers = [(500, {}, {})]
    runs.run(fourteen, now=NOW)
    assert (due(fourteen, seconds=29), due(fourteen, seconds=30)) == ((), ("one",))


def test_decisions_are_carried_only_where_they_are_known(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    runs = PublisherRuns(config_of(entry(planner, "one", more=", value: decision")), tmp_path)
    assert runs.due({"floor": [want("chat-70b", 14)]}, now=NOW) == ()
    assert runs.run({"floor": [want("chat-70b", 14)]}, now=NOW).outcomes == ()
    assert planner.requests == []
    runs.run({"floor": [want("chat-70b", 14)], "decision": [want("chat-70b", 17)]}, now=NOW)
    assert planner.minimums == {"min_endpoint": 17}


def test_the_schedule_goes_everywhere(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path, schedule: FloorSchedule
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    config = config_of(entry(planner, "one"), "{kind: csv}", "{kind: parquet, pools: [chat-70b]}")
    outcomes = publish_everywhere(schedule, config, tmp_path, NOW, clock=NOW)
    assert {one.publisher: (one.pool, one.did, one.after) for one in outcomes} == {
        "csv": ("*", "written", None),
        "parquet": ("*", "written", None),
        "one": ("chat-70b", "applied", 14),
    }
    # Five minutes later the window of 13 is due.
    publish_everywhere(schedule, config, tmp_path, NOW, clock=NOW + timedelta(minutes=5))
    assert planner.minimums == {"min_endpoint": 13}


def test_a_floor_that_the_service_holds_up_is_not_undercut(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path, schedule: FloorSchedule
) -> None:
    """14 is due."""
    planner = planner_of("agg", min_endpoint=20)
    config = config_of(entry(planner, "one"))
    for held, there in ((20, 20), (18, 20), (22, 22)):
        publish_everywhere(schedule, config, tmp_path, NOW, clock=NOW, held={"chat-70b": held})
        assert planner.minimums == {"min_endpoint": there}
    # Now it is ours, and may be let down.
    for held, there in ((21, 21), (3, 14)):
        publish_everywhere(schedule, config, tmp_path, NOW, clock=NOW, held={"chat-70b": held})
        assert planner.minimums == {"min_endpoint": there}


@pytest.mark.parametrize("clock", [NOW - timedelta(minutes=6), NOW + timedelta(hours=2)], ids=["future", "past"])
def test_a_run_on_another_time_writes_files_and_touches_nothing_else(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path, schedule: FloorSchedule, clock: datetime
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    config = config_of(entry(planner, "one"), "{kind: csv}")
    outcomes = publish_everywhere(schedule, config, tmp_path, NOW, clock=clock)
    assert {one.publisher: one.did for one in outcomes} == {"csv": "written", "one": "expired"}
    assert planner.requests == []
    assert (tmp_path / "schedule.csv").exists()


def test_a_file_that_cannot_be_written_stops_no_other(
    config_of: ConfigOf, tmp_path: Path, schedule: FloorSchedule
) -> None:
    (tmp_path / "schedule.csv").mkdir()
    outcomes = publish_everywhere(schedule, config_of("{kind: csv}", "{kind: parquet}"), tmp_path, NOW, clock=NOW)
    assert {one.publisher: one.did for one in outcomes} == {"csv": "failed", "parquet": "written"}
    assert "Is a directory" in outcomes[0].note


def test_a_folder_that_cannot_hold_the_record_is_told_after_all_was_done(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    (tmp_path / "publishers.json").mkdir()
    wanted = {"floor": [want("chat-70b", 14)]}
    config = config_of(entry(planner, "one"))
    with pytest.raises(PublishError, match=r"publishers\.json"):
        run_publishers(config, tmp_path, wanted, now=NOW)  # type: ignore[arg-type]
    assert planner.minimums == {"min_endpoint": 14}
    run = PublisherRuns(config, tmp_path).run(wanted, now=NOW)  # type: ignore[arg-type]
    assert [one.did for one in run.outcomes] == ["unchanged"]
    assert run.fault is not None


def test_publishers_that_are_gone_leave_the_record(planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path) -> None:
    planner = planner_of("agg", min_endpoint=2)
    wanted = {"floor": [want("chat-70b", 14)]}
    run_publishers(config_of(entry(planner, "old")), tmp_path, wanted, now=NOW)  # type: ignore[arg-type]
    assert read_record(tmp_path).ours == {"old": {"chat-70b": 14}}
    run_publishers(config_of(entry(planner, "new")), tmp_path, wanted, now=NOW)  # type: ignore[arg-type]
    assert {one.publisher for one in read_record(tmp_path).outcomes} == {"new"}
    assert read_record(tmp_path).ours == {}


HANGS = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from floorcast.parsing import parse_config
from pipelines.publishers.outcome import Wanted
from pipelines.publishers.run import run_publishers
config = parse_config(Path(sys.argv[1]).read_text(), file="floorcast.yaml", environment={})
wanted = Wanted(pool="chat-70b", replicas=14, floor=14, max_replicas=40, reason="because")
[outcome] = run_publishers(config, Path(sys.argv[2]), {"floor": [wanted]}, now=datetime.now(UTC))
sys.stdout.write(outcome.note)
"""


def test_a_process_ends_although_a_publisher_hangs(planner_of: PlannerOf, tmp_path: Path) -> None:
    """The head of the answer comes a byte at a time for a minute, which no timeout of a request ends."""
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = ["leak"]
    text = FLEET + "publishers:\n  - " + entry(planner, "slow", more=", timeout: 1s, deadline: 1s") + "\n"
    (tmp_path / "floorcast.yaml").write_text(text)
    command = [sys.executable, "-c", HANGS, str(tmp_path / "floorcast.yaml"), str(tmp_path)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert "not done within 1s" in ended.stdout
    assert json.loads((tmp_path / "publishers.json").read_text())["outcomes"][0]["did"] == "failed"


FLEET = """\
mode: apply
pools:
  chat-70b:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [chat-70b]}
"""


@pytest.mark.parametrize(
    ("publishers", "fault"),
    [
        (["{kind: csv}", "{kind: csv}"], "two publishers are called csv"),
        (["{kind: csv, pools: [chat-7b]}"], "did you mean chat-70b?"),
        (["{kind: cvs}"], "publishers.0"),
        (['{kind: dynamo, url: "http://p:9086"}'], "is unified, beside pools that are not"),
        (['{kind: dynamo, url: "p:9086", pools: [chat-70b]}'], "publishers.0.url"),
        (['{kind: dynamo, url: "http://p:9086", pools: [chat-70b], resync: 0s}'], "use at least 1s"),
        (['{kind: dynamo, url: "http://p:9086", pools: [chat-70b], deadline: 5s}'], "raise `deadline`"),
        (['{kind: dynamo, url: "http://p:9086", pools: [chat-70b], timout: 5s}'], "did you mean `timeout`?"),
    ],
)
def test_what_cannot_be_published_is_refused_with_a_remedy(
    config_of: ConfigOf, publishers: list[str], fault: str
) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(*publishers)
    assert fault in str(error.value)
    assert "remedy: " in str(error.value)
