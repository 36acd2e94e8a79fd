"""A real PostgreSQL: the same rows give the same steps, and each fault has its outcome."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from floorcast.errors import DataError
from floorcast.source import SqlSource
from pipelines.sources.chunk import Chunk
from pipelines.sources.sql import examine_sql

pytestmark = pytest.mark.server

T0 = datetime(2026, 11, 3, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ROWS = 3000
WHERE = 'WHERE "startTime" >= $start AND "startTime" < $end'
QUERY = f'SELECT "startTime", prompt_tokens, completion_tokens, model_group FROM "LiteLLM_SpendLogs" {WHERE};'
COLUMNS = {
    "time": "startTime",
    "tokens_in": "prompt_tokens",
    "tokens_out": "completion_tokens",
    "class": "model_group",
}
SLOW = f'SELECT *, pg_sleep(0.001) FROM "LiteLLM_SpendLogs" {WHERE}'
"""Three seconds and more for all rows, half of it for eight hours."""

Gateway = Callable[..., SqlSource]
Read = Callable[..., list[Chunk]]
Whole = Callable[[list[Chunk]], pl.DataFrame]


@pytest.fixture
def filled(server: Any) -> Any:
    """A request every 20 seconds from T0 on, of two classes in turn."""
    server.run(
        "INSERT INTO \"LiteLLM_SpendLogs\" SELECT n::text, TIMESTAMP '2026-11-03 00:00:00' + n * INTERVAL '20 s', "
        "NULL, 100 + n % 7, n % 50, CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, '{}' "
        f"FROM generate_series(0, {ROWS - 1}) AS n"
    )
    return server


@pytest.fixture
def gateway(source: Gateway) -> Gateway:
    def make(server: Any, **keys: Any) -> SqlSource:
        return source(**{"database": server.url(), "query": QUERY, "columns": COLUMNS} | keys)

    return make


def test_the_table_of_a_gateway_gives_the_steps_of_the_same_rows_in_files(
    gateway: Gateway,
    source: Gateway,
    filled: Any,
    read: Read,
    whole: Whole,
    write: Any,
) -> None:
    """The server's own zone is New York; times without zone are UTC all the same, and so is the interval."""
    write([(T0 + n * timedelta(seconds=20), 100 + n % 7, n % 50, "ab"[n % 2]) for n in range(ROWS)])
    begin, end = T0 + 3 * HOUR, T0 + 20 * HOUR
    found = whole(read(gateway(filled, chunk="4h"), begin, end))
    assert_frame_equal(found, whole(read(source(chunk="4h"), begin, end)))
    assert found["step_start"].min() == begin
    assert found["requests"].sum() == found.height / 2 * 15


def test_numeric_text_and_zoned_columns_are_read_as_what_they_say(
    gateway: Gateway, filled: Any, read: Read, whole: Whole
) -> None:
    query = (
        'SELECT "startTime" AT TIME ZONE \'UTC\' AS "startTime", prompt_tokens::numeric(9, 1) AS prompt_tokens, '
        f'completion_tokens::text AS completion_tokens, model_group::varchar FROM "LiteLLM_SpendLogs" {WHERE}'
    )
    plain, converted = (whole(read(gateway(filled, **keys), T0, T0 + HOUR)) for keys in ({}, {"query": query}))
    assert plain.height > 0
    assert_frame_equal(converted, plain)


def test_an_empty_table_gives_no_chunk(gateway: Gateway, server: Any, read: Read) -> None:
    assert read(gateway(server), T0, T0 + HOUR) == []


def test_nulls_and_negative_numbers_are_rejected(gateway: Gateway, filled: Any, read: Read) -> None:
    filled.run("UPDATE \"LiteLLM_SpendLogs\" SET prompt_tokens = NULL WHERE request_id = '3'")
    filled.run("UPDATE \"LiteLLM_SpendLogs\" SET completion_tokens = -1 WHERE request_id = '4'")
    [chunk] = read(gateway(filled, max_reject_share=0.02), T0, T0 + HOUR)
    assert chunk.rejected == {"missing_tokens": 1, "negative_tokens": 1}
    assert chunk.samples == 180


FAULTS = {
    "wrong password": ({"password": "wr0ng"}, {}, "refused the connection.*password authentication failed"),
    "no such user": ({"user": "nobody"}, {}, "refused the connection.*authentication failed"),
    "no such database": ({"database": "nothing"}, {}, "refused the connection.*does not exist"),
    "syntax": ({}, {"query": QUERY.replace("FROM", "FORM")}, "cannot run the query.*syntax error"),
    "no such table": ({}, {"query": QUERY.replace("SpendLogs", "Spend")}, 'relation "LiteLLM_Spend" does not exist'),
    "column not given": (
        {},
        {"columns": COLUMNS | {"tokens_in": "tokens"}},
        "gives no column `tokens`",
    ),
    "division by zero in a late row": (
        {},
        {"query": QUERY.replace("prompt_tokens,", "1 / (request_id::int - 2999) AS prompt_tokens,")},
        "cannot run the query.*division by zero",
    ),
    "too slow": ({}, {"query": SLOW, "timeout": "1s"}, "took longer than 1s and was cancelled"),
    "two statements": (
        {},
        {"query": f'SELECT 1) q; DROP TABLE "LiteLLM_SpendLogs"; SELECT * FROM ({QUERY}'},
        "multiple",
    ),
    "a function that writes": ({}, {"query": QUERY.replace("SELECT", "SELECT nextval('s'),")}, "read-only transaction"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_says_what_is_wrong_and_never_the_password(
    fault: str, gateway: Gateway, filled: Any, read: Read
) -> None:
    filled.run("CREATE SEQUENCE IF NOT EXISTS s")
    access, keys, words = FAULTS[fault]
    with pytest.raises(DataError, match=words) as caught:
        read(gateway(filled, database=filled.url(**access), **keys), T0, T0 + 20 * HOUR)
    text = str(caught.value)
    assert (
        caught.value.where
        == f"source gateway (postgresql://127.0.0.1:{filled.port}/{access.get('database', 'postgres')})"
    )
    assert caught.value.remedy
    assert "s3cret" not in text
    assert "wr0ng" not in text
    assert filled.run('SELECT count(*) FROM "LiteLLM_SpendLogs"') == [(ROWS,)]


def test_a_server_that_is_not_there_is_asked_again_and_then_named(
    gateway: Gateway, source: Gateway, read: Read
) -> None:
    away = source(database="postgresql://floor:s3cret@127.0.0.1:9/postgres", query=QUERY, columns=COLUMNS)
    with pytest.raises(DataError, match=r"Connection refused.*\), 4 times in a row") as caught:
        read(away, T0, T0 + HOUR)
    assert "s3cret" not in str(caught.value)


def test_a_connection_cut_in_the_middle_is_made_again_and_no_row_counts_twice(
    gateway: Gateway, filled: Any, read: Read, whole: Whole
) -> None:
    undisturbed = whole(read(gateway(filled), T0, T0 + 8 * HOUR))
    with _running(filled, lambda: read(gateway(filled, query=SLOW), T0, T0 + 8 * HOUR)) as (backend, outcome):
        assert filled.run(f"SELECT pg_terminate_backend({backend})") == [(True,)]
        cut = whole(outcome.result(60))
    assert_frame_equal(cut, undisturbed)


def test_a_server_that_dies_in_the_middle_and_stays_away_is_an_error(gateway: Gateway, filled: Any, read: Read) -> None:
    with _running(filled, lambda: read(gateway(filled, query=SLOW), T0, T0 + 20 * HOUR)) as (_, outcome):
        filled.stop()
        try:
            with pytest.raises(DataError, match="4 times in a row"):
                outcome.result(60)
        finally:
            filled.start()


def test_a_server_that_stops_answering_is_given_up(
    gateway: Gateway, filled: Any, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.sources.sql.database._GRACE_S", 1.0)
    # Stopped long before it ends or is cancelled, on a busy machine too.
    slow = gateway(filled, query=SLOW.replace("0.001", "0.01"), timeout="6s")
    with _running(filled, lambda: read(slow, T0, T0 + 20 * HOUR)) as (backend, outcome):
        os.kill(backend, signal.SIGSTOP)
        try:
            with pytest.raises(DataError, match="stopped answering"):
                outcome.result(30)
        finally:
            os.kill(backend, signal.SIGCONT)


@contextmanager
def _running(server: Any, work: Callable[[], list[Chunk]]) -> Iterator[tuple[int, Future[list[Chunk]]]]:
    """`work` in a thread, once its slow query runs: the process that serves it, and what comes of it."""
    outcome: Future[list[Chunk]] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except DataError as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    query = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'floorcast' AND state = 'active' "
        "AND query LIKE '%COPY%pg_sleep%' AND clock_timestamp() - query_start > INTERVAL '0.3 s'"
    )
    while not (found := server.run(query)):
        assert thread.is_alive()
        time.sleep(0.05)
    yield found[0][0], outcome
    thread.join(60)
    assert not thread.is_alive()


def test_examining_shows_columns_ends_counts_and_rows_ahead(gateway: Gateway, filled: Any, tmp_path: Path) -> None:
    filled.run('UPDATE "LiteLLM_SpendLogs" SET prompt_tokens = NULL WHERE request_id::int % 2 = 1')
    found, demand = examine_sql(
        gateway(filled), classes=["chat", "code"], step=5 * MINUTE, now=T0 + 10 * HOUR + MINUTE, base=tmp_path
    )
    assert list(found.columns) == list(COLUMNS.values())
    assert not found.zone
    assert (found.first, found.last) == (T0, T0 + 10 * HOUR + timedelta(seconds=40))
    assert (found.rows, found.rejected) == (1803, {"missing_tokens": 901})
    assert {one.workload_class: one.requests for one in found.classes} == {"chat": 900, "code": 0}
    assert demand.filter(workload_class="chat")["requests"].sum() == 900
    assert (found.ahead, found.newest_ahead) == (597, T0 + timedelta(seconds=20 * (ROWS - 2)))
