"""Dated cron triggers, read as KEDA reads them."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from hypothesis import given
from hypothesis import strategies as st

from floorcast.config import Config
from floorcast.publisher import CronPublisher, KubernetesPublisher
from floorcast.types import FloorSchedule
from pipelines.publishers.cron import cron_triggers, write_cron
from pipelines.publishers.steps import Step
from pipelines.publishers.tolerance import through_tolerance

GOLDEN = Path(__file__).parent / "goldens" / "cron" / "chat-70b.yaml"
START = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ENTRY = CronPublisher(kind="cron")


def next_time(cron: str, now: datetime) -> datetime:
    """The next time after `now` that a dated cron line matches, as robfig/cron finds it: later than now, within five
    years."""
    minute, hour, day, month = map(int, cron.split()[:4])
    for year in range(now.year, now.year + 6):
        try:
            found = datetime(year, month, day, hour, minute, tzinfo=UTC)
        except ValueError:
            continue
        if found > now:
            return found
    raise AssertionError(f"{cron} does not come within five years")


def active(trigger: dict[str, Any], now: datetime) -> bool:
    """KEDA's rule: where the next start comes before the next end, it is inactive, else it is active."""
    metadata = trigger["metadata"]
    return not next_time(metadata["start"], now) < next_time(metadata["end"], now)


def highest(triggers: list[dict[str, Any]], now: datetime) -> int:
    return max((int(trigger["metadata"]["desiredReplicas"]) for trigger in triggers if active(trigger, now)), default=0)


def steps(start: datetime, counts: list[int], width: timedelta) -> list[Step]:
    return [Step(start + i * width, start + (i + 1) * width, count) for i, count in enumerate(counts)]


STARTS = st.integers(0, 7 * 365 * 24 * 60).map(lambda minutes: datetime(2026, 1, 1, tzinfo=UTC) + minutes * MINUTE)
LATE = timedelta(hours=23, minutes=50)
DAYS = [(2028, 2, 28), (2028, 2, 29), (2026, 12, 31)]
NEAR_EDGES = st.sampled_from([datetime(*day, tzinfo=UTC) + LATE for day in DAYS])


@given(
    start=STARTS | NEAR_EDGES,
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    width=st.sampled_from([1, 5, 60, 60 * 24]),
    overlap=st.integers(1, 5),
    tolerance=st.sampled_from([0.0, 0.1]),
    minimum=st.integers(0, 10),
)
def test_at_every_minute_of_the_horizon_the_highest_trigger_holds_the_floor(
    start: datetime, counts: list[int], width: int, overlap: int, tolerance: float, minimum: int
) -> None:
    found = steps(start, counts, width * MINUTE)
    triggers = cron_triggers(
        found, above=minimum, overlap=overlap * MINUTE, hold=timedelta(days=1), tolerance=tolerance
    )
    stride = MINUTE if width < 60 else width // 7 * MINUTE
    for step in found:
        now = step.start
        while now < step.end:
            assert max(highest(triggers, now), minimum) >= max(through_tolerance(step.replicas, tolerance), minimum)
            now += stride
        for edge in (step.start, step.end - timedelta(seconds=1)):
            assert max(highest(triggers, edge), minimum) >= step.replicas


@given(start=STARTS | NEAR_EDGES, counts=st.lists(st.integers(1, 60), min_size=2, max_size=6))
def test_two_neighbours_are_both_active_for_the_overlap(start: datetime, counts: list[int]) -> None:
    """KEDA looks at most every few seconds and at different moments for each: a fleet must not dip between two."""
    found = steps(start, counts, 5 * MINUTE)
    triggers = cron_triggers(found, above=0, overlap=2 * MINUTE, hold=timedelta(days=1), tolerance=0)
    for place, step in enumerate(found[:-1]):
        for seconds in (0, 59, 119):
            now = step.end + timedelta(seconds=seconds)
            assert active(triggers[place], now)
            assert active(triggers[place + 1], now)


@given(start=STARTS | NEAR_EDGES, counts=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_when_all_are_over_none_is_active_until_their_dates_come_again(start: datetime, counts: list[int]) -> None:
    found = steps(start, counts, 5 * MINUTE)
    triggers = cron_triggers(found, above=0, overlap=2 * MINUTE, hold=timedelta(days=1), tolerance=0)
    over = found[-1].end + timedelta(days=1) + 2 * MINUTE
    for days in (0, 1, 30, 300):
        assert highest(triggers, over + timedelta(days=days)) == 0
    before = found[0].start - timedelta(days=2)
    assert highest(triggers, before) == 0


def test_the_last_floor_goes_on_for_the_hold() -> None:
    triggers = cron_triggers(
        steps(START, [5, 7], 5 * MINUTE), above=1, overlap=MINUTE, hold=timedelta(days=7), tolerance=0
    )
    assert triggers[-1]["metadata"] == {
        "timezone": "Etc/UTC",
        "start": "0 9 30 11 *",
        "end": "6 9 7 12 *",
        "desiredReplicas": "7",
    }


def test_floors_that_the_minimum_holds_anyway_need_no_trigger() -> None:
    """KEDA refuses a trigger of 0 replicas."""
    assert cron_triggers(steps(START, [0, 2, 2], 5 * MINUTE), above=2, overlap=MINUTE, hold=MINUTE, tolerance=0) == []


def test_seconds_widen_a_trigger_to_whole_minutes() -> None:
    step = Step(START + timedelta(seconds=30), START + timedelta(minutes=4, seconds=30), 5)
    [trigger] = cron_triggers([step], above=1, overlap=MINUTE, hold=timedelta(0), tolerance=0)
    assert (trigger["metadata"]["start"], trigger["metadata"]["end"]) == ("55 8 30 11 *", "1 9 30 11 *")


def written(schedule: FloorSchedule, config: Config, folder: Path) -> dict[str, Any]:
    write_cron(schedule, config, ENTRY, ["chat-70b", "batch.405b"], folder, START)
    return {path.stem: yaml.safe_load(path.read_text()) for path in (folder / "cron").iterdir()}


def test_the_manifest_is_as_reviewed(tmp_path: Path, fleet: FloorSchedule, config: Config) -> None:
    written(fleet, config, tmp_path)
    text = (tmp_path / "cron" / "chat-70b.yaml").read_text()
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), (
        "if the change is meant: UPDATE_GOLDENS=1 .venv/bin/pytest tests/pipelines/publishers/test_cron.py"
    )


def test_the_manifest_is_one_scaled_object_that_keda_knows(
    tmp_path: Path, fleet: FloorSchedule, config: Config
) -> None:
    manifests = written(fleet, config, tmp_path)
    for manifest in manifests.values():
        known = ScaledObject.model_validate(manifest).model_dump(by_alias=True, exclude_none=True, mode="json")
        assert known == manifest
        names = [trigger["name"] for trigger in manifest["spec"]["triggers"]]
        assert len(set(names)) == len(names)
    assert [trigger["type"] for trigger in manifests["chat-70b"]["spec"]["triggers"]] == ["prometheus", "cron", "cron"]
    # It may scale to zero: 0 at first, which needs no trigger, then 2.
    assert manifests["batch.405b"]["spec"]["minReplicaCount"] == 0
    assert [t["metadata"]["desiredReplicas"] for t in manifests["batch.405b"]["spec"]["triggers"][1:]] == ["2"]


def test_where_a_publisher_applies_the_minimum_the_manifest_leaves_it_out(
    tmp_path: Path, fleet: FloorSchedule, config: Config
) -> None:
    """Two that apply one field would meet a conflict, or take it from each other."""
    live = config.model_copy(update={"publishers": (KubernetesPublisher(kind="kubernetes", pools=("chat-70b",)),)})
    spec = {name: manifest["spec"] for name, manifest in written(fleet, live, tmp_path).items()}
    assert "minReplicaCount" not in spec["chat-70b"]
    assert "minReplicaCount" in spec["batch.405b"]
    text = (tmp_path / "cron" / "chat-70b.yaml").read_text()
    assert "publisher kubernetes applies it" in text
    assert "--field-manager" not in text


def test_a_manifest_of_ours_that_is_not_written_again_is_removed(
    tmp_path: Path, fleet: FloorSchedule, config: Config
) -> None:
    written(fleet, config, tmp_path)
    (tmp_path / "cron" / "mine.yaml").write_text("kind: ConfigMap\n")
    write_cron(fleet, config, ENTRY, ["chat-70b"], tmp_path, START)
    assert sorted(path.name for path in (tmp_path / "cron").iterdir()) == ["chat-70b.yaml", "mine.yaml"]


def test_a_long_schedule_keeps_to_the_limit(
    tmp_path: Path, schedule_of: Callable[..., FloorSchedule], config: Config
) -> None:
    schedule = schedule_of({"chat-70b": [(3 + i * 7 % 19, 1.0) for i in range(22)]})
    entry = CronPublisher(kind="cron", triggers=4)
    write_cron(schedule, config, entry, ["chat-70b"], tmp_path, START)
    manifest = yaml.safe_load((tmp_path / "cron" / "chat-70b.yaml").read_text())
    triggers = [trigger for trigger in manifest["spec"]["triggers"] if trigger["type"] == "cron"]
    assert len(triggers) <= 4
    for window in schedule.pools["chat-70b"].windows:
        assert highest(triggers, window.start) >= window.min_replicas
