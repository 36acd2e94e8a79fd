"""From where each class of a source is read, and what a chunk takes further."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND
from floorcast.source import PrometheusSource, SqlSource
from floorcast.workload import WorkloadClass
from pipelines.sources import Chunk
from pipelines.stages.resume import WHOLE, Leg, asked, lagging, legs, reached

HOUR, STEP = timedelta(hours=1), timedelta(minutes=5)
NOW = datetime(2026, 11, 16, 12, 7, tzinfo=UTC)
LIVE = PrometheusSource(name="prod", kind="prometheus", url="http://h", history=timedelta(days=2))
QUERY = {
    "name": "gateway",
    "kind": "sql",
    "query": "SELECT * FROM log WHERE at >= $start AND at < $end",
    "columns": {"time": "at", "tokens_in": "i", "tokens_out": "o"},
    "class": "chat",
}
SQL = SqlSource.model_validate(QUERY)
CLASSES = {name: WorkloadClass(pools=("pool",), match={"model_name": name}) for name in ("chat", "agent")}


def at(hour: float) -> datetime:
    return datetime(2026, 11, 16, tzinfo=UTC) + hour * HOUR


def read(source, known, **seen):
    names = [WHOLE] if isinstance(source, SqlSource) else CLASSES
    return [(leg.start, leg.end, sorted(leg.classes)) for leg in legs(source, names, known, seen, now=NOW, step=STEP)]


def test_classes_that_are_abreast_are_read_together_from_the_chunk_of_the_allowed_lateness():
    assert read(LIVE, dict.fromkeys(CLASSES, at(12))) == [(at(10), None, ["agent", "chat"])]
    assert read(LIVE, {"chat": at(12), "agent": at(11)}) == [(at(10), None, ["agent", "chat"])]
    assert read(LIVE, {}) == [(at(-36), None, ["agent", "chat"])]


def test_one_that_is_new_is_read_alone_up_to_where_the_other_is():
    assert read(LIVE, {"chat": at(12)}) == [(at(-36), at(10), ["agent"]), (at(10), None, ["agent", "chat"])]


def test_one_that_lags_is_looked_for_within_history_and_both_where_the_source_was_not_read_for_long():
    assert read(LIVE, {"chat": at(12), "agent": at(5)}) == [
        (at(4), at(10), ["agent"]),
        (at(10), None, ["agent", "chat"]),
    ]
    assert read(LIVE, {"chat": at(12), "agent": at(-900)})[0] == (at(-38), at(10), ["agent"])
    assert read(LIVE, dict.fromkeys(CLASSES, at(-900))) == [(at(-902), None, ["agent", "chat"])]


def test_one_that_is_looked_for_is_read_from_when_it_is_seen_and_not_before_it_is():
    lags = {"chat": at(12), "agent": at(-9)}
    assert lagging(LIVE, CLASSES, lags, now=NOW) == {"agent": at(-9)}
    assert read(LIVE, lags, agent=None) == [(at(10), None, ["agent", "chat"])]
    assert read(LIVE, lags, agent=at(4.1)) == [(at(2), at(10), ["agent"]), (at(10), None, ["agent", "chat"])]
    assert read(LIVE, lags, agent=at(4.5)) == [(at(4), at(10), ["agent"]), (at(10), None, ["agent", "chat"])]


def test_only_a_class_that_needs_more_than_the_newest_chunks_is_looked_for_and_within_history():
    history = dict.fromkeys(CLASSES, NOW - 48 * HOUR)
    assert lagging(LIVE, CLASSES, {}, now=NOW) == history
    assert lagging(LIVE, CLASSES, {"chat": at(12), "agent": at(10)}, now=NOW) == {}
    assert lagging(LIVE, CLASSES, {"chat": at(12), "agent": at(-900)}, now=NOW) == {"agent": at(-36)}
    assert lagging(SQL, [WHOLE], {}, now=NOW) == {}


def test_a_query_goes_on_from_the_step_and_begins_with_a_chunk():
    assert read(SQL, {WHOLE: at(12)}) == [(at(11.75), None, [WHOLE])]
    assert read(SQL, {}) == [(at(-28 * 24), None, [WHOLE])]


def test_what_is_asked_for_tells_labels_and_queries_apart_and_nothing_else():
    same = asked(LIVE, CLASSES)
    assert set(same) == set(CLASSES)
    assert same["chat"] != same["agent"]
    moved = LIVE.model_copy(update={"url": "http://other", "history": HOUR})
    assert asked(moved, CLASSES) == same
    mended = CLASSES | {"chat": WorkloadClass(pools=("pool",), match={"model_name": "llama"})}
    assert asked(LIVE, mended) == same | {"chat": asked(LIVE, mended)["chat"]} != same
    assert not set(asked(LIVE.model_copy(update={"match": {"cluster": "eu"}}), CLASSES).values()) & set(same.values())
    assert asked(SQL, CLASSES) == asked(SqlSource.model_validate(QUERY | {"chunk": "1h"}), CLASSES)
    assert asked(SQL, CLASSES) != asked(SqlSource.model_validate(QUERY | {"class": "agent"}), CLASSES)


@pytest.mark.parametrize("source", [LIVE, SQL], ids=["prometheus", "sql"])
def test_a_chunk_takes_a_live_class_to_its_last_step_and_a_query_to_its_end(source):
    rows = [("chat", at(10)), ("chat", at(11)), ("agent", at(10))]
    demand = pl.DataFrame(
        [dict.fromkeys(DEMAND, None) | {"workload_class": name, "step_start": start} for name, start in rows],
        schema=dict(DEMAND),
    )
    chunk = Chunk(start=at(10), end=at(12), demand=demand, samples=3, server_s=0.0)
    found = dict(reached(source, chunk, step=STEP))
    assert found == ({WHOLE: at(12)} if source is SQL else {"chat": at(11) + STEP, "agent": at(10) + STEP})


def test_legs_are_contiguous_and_end_at_the_present():
    found = legs(LIVE, CLASSES, {"chat": at(3), "agent": at(9)}, {}, now=NOW, step=STEP)
    assert found == [
        Leg(at(2), at(8), frozenset({"chat"})),
        Leg(at(8), None, frozenset({"chat", "agent"})),
    ]
