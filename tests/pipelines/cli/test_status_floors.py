"""What `floorcast status` says of the floors in force."""

from __future__ import annotations

import json
from datetime import timedelta

from floorcast.types import FloorSchedule
from store.connection import open_store
from store.publications import latest_publication


def test_floors_due_now_and_what_is_short_are_shown_by_pool(main, published, reconfigure, live, now):
    """Replicas of a hundredth of the speed: a hundred times as many, more than the maximum of 60."""
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    calm = json.loads(main("status", *at, "--json", cwd=published.base).out)["pools"]
    with open_store(published.store_path) as store:
        schedule = FloorSchedule.model_validate_json(latest_publication(store).schedule)
    due = {name: pool.windows[0].min_replicas for name, pool in schedule.pools.items()}
    assert {row["pool"]: row["min_replicas"] for row in calm} == due
    assert [row["short"] for row in calm] == [None, None]

    slow = reconfigure(published, "decode_tokens_per_s: 900}", "decode_tokens_per_s: 9}")
    shortfalls = live(slow, now + timedelta(hours=1), "plan", "publish")["plan"].result.shortfalls
    at = ("--now", f"{now + timedelta(hours=1):%Y-%m-%dT%H:%M}")
    (chat,) = (
        row
        for row in json.loads(main("status", *at, "--json", cwd=slow.base).out)["pools"]
        if row["pool"] == "chat-70b"
    )
    mine = [one for one in shortfalls if one.pool == "chat-70b"]
    assert chat["short"]["replicas"] == max(one.replicas for one in mine)
    assert chat["short"]["hours"] == round(sum((one.end - one.start).total_seconds() for one in mine) / 3600, 2)
    (line,) = (row for row in main("status", *at, cwd=slow.base).out.splitlines() if row.startswith("chat-70b "))
    assert f"up to {chat['short']['replicas']}" in line


def test_a_schedule_that_does_not_cover_now_has_no_floor_due(main, published, now):
    late = ("--now", f"{now + timedelta(days=9):%Y-%m-%dT%H:%M}")
    pools = json.loads(main("status", *late, "--json", cwd=published.base).out)["pools"]
    assert {(row["min_replicas"], row["short"]) for row in pools} == {(None, None)}
