"""`diff` and `whatif` over a real store: what they print, and that they change nothing."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest

HOUR = timedelta(hours=1)


def _bytes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_whatif_compares_two_plans_and_leaves_every_byte_as_it_was(main, published):
    before = _bytes(published.base)
    ran = main(
        *("whatif", "--set", "pools.chat-70b.capacity.decode_tokens_per_s=450", "--set", "pools.code-8b.gpu.type=L4"),
        *("--set", "pools.chat-70b.gpu.usd_per_gpu_hour=7.98", "--json"),
        cwd=published.base,
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    chat, code = found["pools"]["chat-70b"], found["pools"]["code-8b"]
    assert chat["after"]["replica_hours"] > chat["before"]["replica_hours"]
    assert chat["before"]["usd"] == pytest.approx(2 * 3.99 * chat["before"]["replica_hours"])
    assert chat["after"]["usd"] == pytest.approx(2 * 7.98 * chat["after"]["replica_hours"])
    assert (code["before"], code["after"]["usd"]) == (code["after"], None)
    assert found["all"]["after"]["usd"] is None
    assert {hour["pool"] for hour in found["hours"]} == {"chat-70b"}
    assert _bytes(published.base) == before


def test_the_plan_as_configured_is_the_one_published(main, published, now):
    ran = main("whatif", "--set", "pools.chat-70b.startup.p90=4m", "--json", cwd=published.base)
    found = json.loads(ran.out)
    schedule = json.loads((published.output / "schedule.json").read_text())
    floors = [window["min_replicas"] for window in schedule["pools"]["chat-70b"]["windows"]]
    assert found["as_of"] == f"{now:%Y-%m-%dT%H:%M:%SZ}"
    assert found["pools"]["chat-70b"]["before"]["most"] == max(floors)
    assert (found["hours"], found["remarks"]) == ([], [])


def test_whatif_says_in_words_what_the_fits_were_not_made_for(main, published):
    settings = ("--set", "pools.chat-70b.startup.p90=2h", "--set", "pools.chat-70b.margin.quantile=0.99")
    ran = main("whatif", *settings, cwd=published.base)
    assert "highest floor" in ran.out
    assert "replica-hours" in ran.out
    assert "chat-70b: the stored forecasts are fitted for a lead window of 3 steps, not of 5" in ran.out
    assert "chosen at quantile 0.95, not at 0.99" in ran.out
    assert "chat-70b: the last windows look ahead to 2026-11-17T01:00:00Z, the forecasts to" in ran.out


@pytest.mark.parametrize(
    ("setting", "said", "code"),
    [
        ("pools.chat-70.startup.p90=1m", "did you mean `chat-70b`?", 2),
        ("pools.chat-70b.startup.p9=1m", "did you mean `p90`?", 2),
        ("pools.chat-70b.startup.p90=soon", "'soon' is not a duration", 2),
        ("pools.chat-70b.bounds.min=99", "min 99 is above max 60", 2),
        ("pools.chat-70b.startup.p90.x=1", "pools.chat-70b.startup.p90 is a value and has no keys", 2),
        ("pools.chat-70b.startup.p90=[", "not a value", 2),
        ("classes.chat.pools.3=code-8b", "no 3 in classes.chat.pools", 2),
        ("step=5m", "what is stored was made with it", 2),
        ("horizon", "is not KEY=VALUE", 2),
    ],
)
def test_a_setting_is_refused_as_in_the_file(main, published, setting, said, code):
    ran = main("whatif", "--set", setting, cwd=published.base)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    if code == 2 and "=" in setting:
        assert f"--set {setting.partition('=')[0]}" in ran.err


def test_diff_says_what_changed_between_the_last_two_publications(main, live, published, reconfigure, now):
    slower = reconfigure(published, "decode_tokens_per_s: 900}", "decode_tokens_per_s: 300}")
    live(slower, now + HOUR, "ingest", "forecast", "plan", "publish")
    ran = main("diff", "--json", cwd=slower.base)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["before"]["version"], found["after"]["version"]) == (1, 2)
    (chat,) = (pool for pool in found["pools"] if pool["pool"] == "chat-70b")
    assert chat["causes"]["capacity"] > 0
    for change in chat["changes"]:
        assert sum(change["effects"].values()) == change["after"] - change["before"]
    swapped = main("diff", "2", "1", cwd=slower.base)
    assert (swapped.code, swapped.out) == (2, "")
    assert "give the earlier one first: floorcast diff 1 2" in swapped.err
    assert "version 2 is not later than version 2" in main("diff", "2", "2", cwd=slower.base).err
    spoken = main("diff", "1", "2", cwd=slower.base)
    assert "version 1, issued 2026-11-16 09:00 UTC" in spoken.out
    assert "capacity +" in spoken.out


def test_diff_names_what_it_cannot_compare(main, published, project):
    assert "no database yet" in main("diff", cwd=project.base).err
    alone = main("diff", cwd=published.base)
    assert (alone.code, "nothing was published before version 1" in alone.err) == (7, True)
    unknown = main("diff", "1", "9", cwd=published.base)
    assert (unknown.code, "no version 9" in unknown.err) == (7, True)
