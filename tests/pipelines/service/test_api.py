"""What each path answers, from a real server over a board made by hand."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import floor_due
from pipelines.service.board import Board, Publication
from pipelines.service.bodies import DecisionsBody, FloorsBody, PublishersBody

EVERY_PATH = (
    "/v1/floors",
    "/v1/floors/chat-70b",
    "/v1/schedule",
    "/v1/decisions",
    "/v1/decisions/chat-70b",
    "/v1/explain/chat-70b",
    "/v1/publishers",
    "/metrics",
)


def test_floors_are_numbers_where_keda_looks_for_them(served: Any, schedule: FloorSchedule) -> None:
    floors = served.get("/v1/floors").json()["floors"]
    assert floors == {pool: floor_due(schedule, pool, served.board.now).min_replicas for pool in schedule.pools}
    assert all(type(floor) is int for floor in floors.values())
    one = served.get("/v1/floors/batch.405b").json()
    assert (one["pool"], one["floor"], one["source"]) == ("batch.405b", floors["batch.405b"], "schedule")


@pytest.mark.parametrize(
    ("path", "model"),
    [("/v1/floors", FloorsBody), ("/v1/decisions", DecisionsBody), ("/v1/publishers", PublishersBody)],
)
def test_bodies_are_what_the_openapi_describes(served: Any, path: str, model: type[BaseModel]) -> None:
    assert model.model_validate_json(served.get(path).text)


def test_a_count_that_is_not_known_is_left_out_and_never_null(served: Any) -> None:
    for path in ("/v1/floors", "/v1/decisions", "/v1/decisions/chat-70b", "/v1/floors/chat-70b", "/v1/publishers"):
        assert "null" not in served.get(path).text
    decision = served.get("/v1/decisions").json()["decisions"]["chat-70b"]
    assert "draining" not in decision
    assert decision["starting"] == 1


def test_the_schedule_is_that_of_the_file(served: Any, schedule: FloorSchedule) -> None:
    assert served.get("/v1/schedule").json() == json.loads(schedule.model_dump_json(by_alias=True))


def test_a_decision_tells_its_triggers_rules_and_words(served: Any) -> None:
    body = served.get("/v1/decisions/chat-70b").json()
    assert body["desired"] == body["floor"] + 2
    assert body["triggers"][0]["name"] == "tokens"
    assert body["rules"][0]["rule"] == "floor"
    assert body["words"].splitlines()[0].endswith("until now")


def test_an_explanation_recomputes_and_comes_as_json_or_text(served: Any, schedule: FloorSchedule) -> None:
    body = served.get("/v1/explain/chat-70b").json()
    assert body["recomputed"] == body["floor"] == floor_due(schedule, "chat-70b", served.board.now).min_replicas
    for text in (
        served.get("/v1/explain/chat-70b?format=text"),
        served.get("/v1/explain/chat-70b", accept="text/plain"),
    ):
        assert text.headers["content-type"] == "text/plain; charset=utf-8"
        assert text.text.startswith(f"chat-70b at 2026-11-30 08:50 UTC: floor {body['floor']}\n")
        assert "\ndecision\n" in text.text
    later = served.get("/v1/explain/chat-70b?at=2026-11-30T10:00:00Z").json()
    assert later["window"]["start"] <= "2026-11-30T10:00:00Z" < later["window"]["end"]
    assert "decision_words" not in later


def test_what_is_not_there_says_so_in_one_shape(served: Any) -> None:
    expected = {
        "/v1/floors/chat-7b": (404, "no pool `chat-7b`", "did you mean `chat-70b`?"),
        "/v1/explain/chat-70b?at=2027-01-01": (404, "no floor for chat-70b at 2027-01-01T00:00:00Z", None),
        "/v1/explain/chat-70b?at=noon": (422, "'noon' is not a time; write it as in", None),
        "/v1/explain/chat-70b?format=xml": (422, "Input should be 'json' or 'text'", None),
        "/v2/floors": (404, "nothing is there", None),
    }
    for path, (status, what, remedy) in expected.items():
        answer = served.get(path)
        error = answer.json()["error"]
        assert (answer.status_code, error["status"]) == (status, status)
        assert error["what"].startswith(what)
        assert remedy in (None, error["remedy"])
    refused = served.get("/v1/floors", method="POST")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert refused.json()["error"]["what"] == "only GET and HEAD are answered"


@pytest.mark.parametrize("path", EVERY_PATH)
def test_an_answer_is_not_sent_again_while_it_is_the_same(served: Any, path: str) -> None:
    first = served.get(path)
    again = served.get(path, if_none_match=first.headers["etag"])
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert first.headers["cache-control"] == "private, no-cache"
    assert served.get(path, if_none_match='"other", "still other"').status_code == 200


def test_the_tag_of_floors_changes_with_a_floor_and_not_with_a_tick(served: Any) -> None:
    tag = served.get("/v1/floors").headers["etag"]
    board: Board = served.board
    served.board = replace(board, now=board.now + timedelta(seconds=15), ticks=board.ticks + 1)
    assert served.get("/v1/floors").headers["etag"] == tag
    chat = replace(board.decisions["chat-70b"], floor=board.decisions["chat-70b"].floor + 1)
    served.board = replace(served.board, decisions={**board.decisions, "chat-70b": chat})
    assert served.get("/v1/floors", if_none_match=tag).json()["floors"]["chat-70b"] == chat.floor


@pytest.mark.parametrize("path", EVERY_PATH)
def test_head_is_get_without_the_body(served: Any, path: str) -> None:
    full, head = served.get(path), served.get(path, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-length", "content-type", "floorcast-validity"):
        assert head.headers[name] == full.headers[name]


def test_large_answers_are_compressed_for_those_who_take_it(served: Any) -> None:
    plain = served.get("/v1/schedule")
    with served.client.stream("GET", "/v1/schedule", headers={"accept-encoding": "gzip"}) as zipped:
        raw = b"".join(zipped.iter_raw())
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 3
    assert zipped.headers["etag"] != plain.headers["etag"]
    assert "accept-encoding" in plain.headers["vary"]
    assert "content-encoding" not in served.get("/v1/floors/chat-70b", accept_encoding="gzip").headers


def test_an_expired_publication_is_said_to_be_and_floors_are_still_served(served: Any) -> None:
    valid = served.get("/v1/floors")
    tag, floors = valid.headers["etag"], valid.json()["floors"]
    schedule = served.board.publication.schedule
    served.board = replace(served.board, now=schedule.valid_until)
    answer = served.get("/v1/floors", if_none_match=tag)
    assert answer.status_code == 200
    assert answer.headers["floorcast-validity"] == answer.json()["validity"] == "expired"
    assert answer.json()["floors"] == floors
    ready = served.get("/readyz")
    assert (ready.status_code, ready.json()["not_ok"]) == (503, ["the publication expired at 2026-11-30T10:50:00Z"])
    assert served.get("/healthz").status_code == 200


def test_without_a_schedule_floors_that_are_held_are_served(served: Any) -> None:
    held = {name: replace(each, window=None, floor_source="held") for name, each in served.board.decisions.items()}
    fault = "schedule.json: not JSON"
    served.board = replace(served.board, publication=Publication(None, fault), decisions=held)
    answer = served.get("/v1/floors")
    assert answer.headers["floorcast-validity"] == answer.json()["validity"] == "missing"
    assert "floorcast-version" not in answer.headers
    assert set(answer.json()) == {"validity", "floors"}
    missing = served.get("/v1/schedule")
    assert (missing.status_code, fault in missing.json()["error"]["what"]) == (404, True)
    assert served.get("/readyz").json()["not_ok"] == [f"no schedule is in force: {fault}"]


def test_a_service_that_has_not_decided_is_alive_and_not_ready(served: Any) -> None:
    served.board = replace(served.board, ticks=0, decisions={})
    assert served.get("/healthz").status_code == 200
    assert served.get("/readyz").json()["not_ok"] == ["nothing is decided yet"]
    assert served.get("/v1/floors").json()["floors"] == {}
