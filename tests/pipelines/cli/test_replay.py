"""`floorcast replay`: policies side by side on stored demand and published floors."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

POLICIES = {
    *("static_peak", "static_mean", "hybrid", "composite", "target_tracking", "step", "threshold", "lookahead"),
    *("last_value", "seasonal_naive", "managed"),
}


def at(moment) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def test_it_replays_published_floors_from_where_they_begin(main, published, now):
    later = now + timedelta(hours=2)
    assert main("ingest", "--now", at(later), cwd=published.base).code == 0
    words = ("replay", "chat-70b", "--days", "0.125", "--now", at(later))
    ran = main(*words, "--figure", "replay.html", "--json", cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    said = json.loads(ran.out)
    (pool,) = said["pools"]
    assert (pool["start"], pool["end"]) == ("2026-11-16T09:00:00Z", "2026-11-16T11:00:00Z")
    assert {row["policy"] for row in pool["policies"]} == POLICIES | {"floorcast"}
    assert all(row["over_clairvoyant"] >= 1 for row in pool["policies"] if row["kept"])
    assert pool["notes"][0] == "replayed from 2026-11-16 09:00 UTC, where published floors begin"
    assert "chat-70b" in (published.base / "replay.html").read_text()


def test_too_few_published_floors_are_left_out_of_a_longer_replay(main, published, now):
    later = now + timedelta(hours=2)
    assert main("ingest", "--now", at(later), cwd=published.base).code == 0
    # Two of five hours, less than half of them.
    words = ("replay", "chat-70b", "--days", str(5 / 24), "--json", "--now", at(later))
    ran = main(*words, cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    (pool,) = json.loads(ran.out)["pools"]
    assert (pool["start"], pool["end"]) == ("2026-11-16T06:00:00Z", "2026-11-16T11:00:00Z")
    assert {row["policy"] for row in pool["policies"]} == POLICIES
    assert pool["notes"][0] == (
        "floors are published from 2026-11-16 09:00 UTC on only, for 2h of this time; floorcast is left out"
    )


def test_floors_that_begin_after_the_last_step_stored_stop_no_replay(main, published, now):
    # As after the first cycle: floors from 09:00 on, data up to 09:00; the command is given a step of an hour later.
    words = ("replay", "code-8b", "--days", "0.125", "--json", "--now", at(now + timedelta(hours=1)))
    ran = main(*words, cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    (pool,) = json.loads(ran.out)["pools"]
    assert (pool["start"], pool["end"]) == ("2026-11-16T07:00:00Z", "2026-11-16T09:00:00Z")
    assert pool["notes"][0] == "no floors are published for this time; floorcast is left out"


def test_without_published_floors_the_other_policies_are_compared(main, published, now):
    ran = main("replay", "code-8b", "--days", "0.125", "--now", at(now), cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("code-8b: 3h to 2026-11-16 09:00 UTC, 99% of tokens within 10s; the clairvoyant pays")
    assert {line.split("  ")[0].replace(" ", "_") for line in lines[2:13]} == POLICIES
    assert "  note: no floors are published for this time; floorcast is left out" in lines


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("replay", "nothing"), 7, "name one of chat-70b, code-8b"),
        (
            ("replay", "chat-70b", "--now", "2020-01-01"),
            3,
            "no demand is stored from 2019-12-04 00:00 to 2020-01-01 00:00 UTC",
        ),
        (
            ("replay", "chat-70b", "--days", "1", "--now", "2026-11-20"),
            3,
            "no demand is stored from 2026-11-19 00:00 to 2026-11-20 00:00 UTC; the newest is of 2026-11-16 08:00",
        ),
    ],
)
def test_what_cannot_be_replayed_is_told(main, published, words, code, said):
    ran = main(*words, cwd=published.base)
    assert ran.code == code
    assert said in ran.err
