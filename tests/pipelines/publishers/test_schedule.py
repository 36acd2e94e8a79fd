from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from datetime import timedelta, timezone
from itertools import pairwise
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.errors import NotFoundError, PublishError
from floorcast.types import Rung
from pipelines.publishers.schedule import build_schedule, expired, floor_due, read_schedule, write_schedule
from pipelines.publishers.schema import schedule_json_schema

HERE = Path(__file__).parent
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.floats(0, 5, allow_subnormal=False),
        st.sampled_from(["fresh", "last_forecast"]),
    ),
    min_size=1,
    max_size=12,
)
POOLS = st.dictionaries(st.sampled_from(["a", "b-1", "c.d"]), STEPS, min_size=1)


def build(floors, rungs=None, **overrides):
    pools = floors["pool"].unique()
    first = floors["window_start"].min()
    arguments = {
        "mode": "advisory",
        "version": 1,
        "issued_at": first - timedelta(minutes=5),
        "valid_until": first + timedelta(hours=2),
        "rungs": dict.fromkeys(pools, Rung.FRESH) if rungs is None else rungs,
        "settings": {},
    }
    return build_schedule(floors=floors, **(arguments | overrides))


def test_equal_neighbours_merge_and_keep_the_reason_of_the_most_demanding_step(schedule_of):
    schedule = schedule_of({"chat": [(3, 2.1), (3, 2.6), (3, 2.6), (4, 3.2), (3, 1.0)]})
    windows = schedule.pools["chat"].windows
    assert [(w.start.strftime("%H:%M"), w.end.strftime("%H:%M"), w.min_replicas) for w in windows] == [
        ("08:55", "09:10", 3),
        ("09:10", "09:15", 4),
        ("09:15", "09:20", 3),
    ]
    # The second and third step demand the same; the second comes first and needs its replicas by 09:09.
    assert [w.reason.required_replicas for w in windows] == [2.6, 3.2, 1.0]
    assert windows[0].reason.needed_by.strftime("%H:%M") == "09:09"


def test_steps_of_different_rungs_do_not_merge(schedule_of):
    schedule = schedule_of({"chat": [(3, 2.1, "fresh"), (3, 2.1, "past_weeks"), (3, 2.1, "past_weeks")]})
    assert [(w.end - w.start) / timedelta(minutes=5) for w in schedule.pools["chat"].windows] == [1, 2]


def test_steps_of_different_placements_do_not_merge(floors_of):
    floors = floors_of({"chat": [(3, 2.1), (3, 2.6), (3, 2.2), (3, 2.4)]})
    reasons = [json.loads(text) for text in floors["reason"]]
    texts = [
        json.dumps(one | {"placed": {"chat": share}}) for one, share in zip(reasons, (0.4, 0.4, 0.3, 0.3), strict=True)
    ]
    windows = build(floors.with_columns(reason=pl.Series(texts))).pools["chat"].windows
    assert [(w.reason.placed, w.reason.required_replicas) for w in windows] == [
        ({"chat": 0.4}, 2.6),
        ({"chat": 0.3}, 2.4),
    ]


def test_a_schedule_carries_what_it_was_given(floors_of):
    floors = floors_of({"chat": [(3, 2.1)]})
    berlin = timezone(timedelta(hours=1))
    issued = floors["window_start"][0].astimezone(berlin)
    schedule = build(
        floors, {"chat": Rung.PAST_WEEKS}, mode="apply", version=7, issued_at=issued, gates={"chat": "closed"}
    )
    pool = schedule.pools["chat"]
    assert (schedule.mode, schedule.version, pool.rung, pool.gate) == ("apply", 7, "past_weeks", "closed")
    assert '"issued_at":"2026-11-30T08:55:00Z"' in schedule.model_dump_json()


@given(pools=POOLS)
@settings(max_examples=60, deadline=None)
def test_merging_keeps_the_floor_of_every_step_and_the_hardest_reason(floors_of, schedule_of, pools):
    """Against the steps themselves; windows are contiguous and cover the steps exactly."""
    floors = floors_of(pools)
    schedule = schedule_of(pools)
    for pool, step in ((row["pool"], row) for row in floors.iter_rows(named=True)):
        window = floor_due(schedule, pool, step["window_start"])
        assert window.min_replicas == step["min_replicas"]
        assert window.reason.required_replicas >= step["required_replicas"]
    for pool, steps in pools.items():
        windows = schedule.pools[pool].windows
        own = floors.filter(pl.col("pool") == pool)
        assert [w.start for w in windows[1:]] == [w.end for w in windows[:-1]]
        assert (windows[0].start, windows[-1].end) == (own["window_start"][0], own["window_end"][-1])
        changes = sum(a[0::2] != b[0::2] for a, b in pairwise(steps))
        assert len(windows) == 1 + changes


@given(pools=POOLS, other=POOLS)
@settings(max_examples=60, deadline=None)
def test_the_content_hash_changes_exactly_when_the_pools_do(schedule_of, pools, other):
    first = schedule_of(pools)
    second = schedule_of(other, version=43, issued_at=first.issued_at + timedelta(minutes=5))
    assert (first.content_hash == second.content_hash) == (first.pools == second.pools)
    assert first.content_hash == schedule_of(pools, version=43).content_hash


def test_anyone_can_recompute_the_hash_from_the_document(tmp_path, fleet):
    document = json.loads(write_schedule(fleet, tmp_path).read_text())
    canonical = json.dumps(document["pools"], sort_keys=True, separators=(",", ":")).encode()
    assert document["content_hash"] == "sha256:" + hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.filter(pl.int_range(pl.len()) != 1), "does not start where the one before it ends"),
        (lambda f: pl.concat([f, f.head(1)]), "does not start where the one before it ends"),
        (lambda f: f.with_columns(min_replicas=pl.lit(None)), "a step is empty"),
        (lambda f: f.with_columns(window_end="window_start"), "a step is empty"),
        (lambda f: f.with_columns(reason=pl.lit('{"binding": "luck"}')), "reason: binding"),
        (lambda f: f.with_columns(pool=pl.lit("unknown")), "no floors"),
        (lambda f: pl.concat([f, f.with_columns(pool=pl.lit("zz-unknown"))]), "no rung"),
    ],
)
def test_floors_that_are_not_whole_are_refused(floors_of, change, says):
    """A missing step or pool is never published as anything."""
    floors = floors_of({"chat": [(3, 2.1), (4, 3.1), (5, 4.1)]})
    with pytest.raises(PublishError, match=says) as caught:
        build(change(floors), {"chat": Rung.FRESH})
    assert caught.value.where.startswith("pool ")
    assert caught.value.remedy


def test_a_validity_that_ends_before_it_begins_is_refused(floors_of):
    floors = floors_of({"chat": [(3, 2.1)]})
    with pytest.raises(PublishError, match="not after issued_at"):
        build(floors, valid_until=floors["window_start"].min() - timedelta(minutes=5))


def test_the_order_of_the_rows_does_not_matter(floors_of):
    floors = floors_of({"a": [(1, 0.1), (2, 1.1)], "b": [(3, 2.1), (3, 2.2)]})
    assert build(floors.reverse()) == build(floors)


@given(pools=POOLS, version=st.integers(1, 10**7))
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_what_is_read(tmp_path_factory, schedule_of, pools, version):
    folder = tmp_path_factory.mktemp("published")
    schedule = schedule_of(pools, version)
    path = write_schedule(schedule, folder)
    assert path == folder / "schedule.json"
    assert read_schedule(path) == schedule
    assert (folder / "schedules" / f"v{version:06d}.json").read_bytes() == path.read_bytes()
    jsonschema.validate(json.loads(path.read_text()), schedule_json_schema())


def test_a_publication_is_three_files_that_others_may_read(tmp_path, fleet):
    write_schedule(fleet, tmp_path)
    files = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert sorted(files) == ["schedule.json", "schedule.schema.json", "schedules/v000042.json"]
    (tmp_path / "ordinary").touch()
    assert {path.stat().st_mode for path in files.values()} == {(tmp_path / "ordinary").stat().st_mode}


def test_publishing_twice_changes_nothing_and_other_content_is_refused(tmp_path, fleet, schedule_of):
    path = write_schedule(fleet, tmp_path)
    before = path.read_bytes()
    assert write_schedule(fleet, tmp_path) == path
    with pytest.raises(PublishError, match="version 42 is already published with other content") as caught:
        write_schedule(schedule_of({"chat": [(1, 0.5)]}), tmp_path)
    assert caught.value.where.endswith("schedules/v000042.json")
    assert path.read_bytes() == before


def test_an_older_version_never_replaces_a_newer_one(tmp_path, fleet):
    path = write_schedule(fleet, tmp_path)
    write_schedule(fleet.model_copy(update={"version": 43}), tmp_path)
    write_schedule(fleet, tmp_path)
    assert read_schedule(path).version == 43


def test_a_damaged_schedule_is_replaced(tmp_path, fleet):
    (tmp_path / "schedule.json").write_text("{")
    assert read_schedule(write_schedule(fleet, tmp_path)) == fleet


def test_a_folder_that_is_a_file_is_named(tmp_path, fleet):
    (tmp_path / "published").touch()
    with pytest.raises(PublishError, match=r"published.*\n  remedy: make the folder writable"):
        write_schedule(fleet, tmp_path / "published")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda d: d | {"schema": 2}, "schema 2 is newer than 1.*upgrade floorcast"),
        (lambda d: d | {"version": 0}, "version: Input should be greater than or equal to 1"),
        (lambda d: d | {"extra": 1}, "extra: Extra inputs are not permitted"),
        (lambda d: {k: v for k, v in d.items() if k != "valid_until"}, "valid_until: Field required"),
        (lambda d: [d], r"\(whole document\)"),
        (lambda d: change_window(d, min_replicas=-1), r"pools.chat-70b.windows.0.min_replicas: Input should be"),
        (lambda d: change_window(d, start="2026-11-30T08:55:00"), r"windows.0.start: .*timezone"),
        (lambda d: change_window(d, min_replicas=2), "content_hash does not match"),
    ],
)
def test_a_document_that_cannot_be_trusted_is_refused(tmp_path, fleet, edit, says):
    """The fault, the file and the remedy are named."""
    path = write_schedule(fleet, tmp_path)
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(PublishError, match=rf"(?s)schedule\.json: .*{says}") as caught:
        read_schedule(path)
    assert caught.value.remedy


def change_window(document, **values):
    document["pools"]["chat-70b"]["windows"][0].update(values)
    return document


@pytest.mark.parametrize("content", [b"", b'{"schema": 1,', b"\xff\xfe"])
def test_a_file_that_is_not_json_is_refused(tmp_path, content):
    (tmp_path / "schedule.json").write_bytes(content)
    with pytest.raises(PublishError, match=r"schedule\.json: not JSON"):
        read_schedule(tmp_path / "schedule.json")


def test_a_missing_file_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(PublishError, match=r"schedule\.json: cannot be read: No such file.*\n.*floorcast publish"):
        read_schedule(tmp_path / "schedule.json")


def test_a_floor_holds_from_its_start_to_before_its_end(fleet):
    window = fleet.pools["chat-70b"].windows[0]
    assert floor_due(fleet, "chat-70b", window.start) == window
    assert floor_due(fleet, "chat-70b", window.end - timedelta(microseconds=1)) == window
    assert floor_due(fleet, "chat-70b", window.end).min_replicas == 13


def test_asking_for_what_is_not_there_says_what_is(fleet):
    windows = fleet.pools["chat-70b"].windows
    with pytest.raises(NotFoundError, match=r"no pool `chat-7b`.*\n.*did you mean `chat-70b`"):
        floor_due(fleet, "chat-7b", windows[0].start)
    with pytest.raises(NotFoundError, match=r"use one of: batch\.405b, chat-70b, code-8b"):
        floor_due(fleet, "zzz", windows[0].start)
    for outside in (windows[0].start - timedelta(seconds=1), windows[-1].end):
        with pytest.raises(NotFoundError, match="from 2026-11-30T08:55:00Z to before 2026-11-30T09:10:00Z"):
            floor_due(fleet, "chat-70b", outside)


def test_a_schedule_expires_at_valid_until(fleet):
    assert not expired(fleet, fleet.valid_until - timedelta(microseconds=1))
    assert expired(fleet, fleet.valid_until)


def test_a_reader_beside_the_writer_never_sees_half_a_file(tmp_path, schedule_of):
    """The two publications differ in size by far, so that a file written in place would be caught."""
    small = schedule_of({"a": [(1, 0.5)]})
    large = schedule_of({pool: [(i % 3, 0.1 * i) for i in range(60)] for pool in "abcdef"})
    path = write_schedule(small.model_copy(update={"version": 1}), tmp_path)
    seen: list[int] = []
    faults: list[PublishError] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                seen.append(read_schedule(path).version)
            except PublishError as error:
                faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(2, 40):
        write_schedule((large if version % 2 else small).model_copy(update={"version": version}), tmp_path)
    done.set()
    reader.join()
    assert not faults
    assert seen == sorted(seen)
    assert len(set(seen)) > 5


def test_a_writer_killed_at_any_moment_leaves_a_whole_schedule(tmp_path, fleet):
    source = write_schedule(fleet, tmp_path / "source")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(HERE / "killed_writer.py")]
    run = subprocess.run(
        [*command, str(source), str(tmp_path / "out"), "40", "7"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")
    killed, last = map(int, run.stdout.split())
    assert killed == 40
    assert last >= 1
