"""`floorcast explain`: the number published, and every step to it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import polars as pl
import pytest

from pipelines.publishers.schedule import floor_due, read_schedule
from store.connection import open_store
from store.floors import read_floors

AT = ("--now", "2026-11-16T09:00")
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("hours", [0, 4, 11])
@pytest.mark.parametrize("pool", ["chat-70b", "code-8b"])
def test_it_recomputes_to_the_number_published(main, published, now, pool, hours):
    moment = now + hours * HOUR + timedelta(minutes=25)
    due = floor_due(read_schedule(published.output / "schedule.json"), pool, moment)
    words = ("explain", pool, "--at", f"{moment:%Y-%m-%d %H:%M}", *AT)
    said = json.loads(main(*words, "--json", cwd=published.base).out)
    assert said["recomputed"] == said["min_replicas"] == due.min_replicas
    assert (said["pool"], said["version"], said["rung"]) == (pool, 1, "fresh")
    text = main(*words, cwd=published.base)
    assert (text.code, text.err) == (0, "")
    assert text.out.startswith(f"{pool} at {now + hours * HOUR:%Y-%m-%d %H:%M} UTC: floor {due.min_replicas}\n")
    assert text.out.endswith(f"  recomputed  {due.min_replicas}, as published\n")
    labels = [line.split()[0] for line in text.out.splitlines()[1:]]
    assert [label for label in labels if label != "together"][:5] == [
        "needed",
        "classes",
        "capacity",
        "margins",
        "lead",
    ]


def test_its_arithmetic_can_be_followed_by_hand(main, published):
    """The quotient printed is that of the figures printed, to the digits printed."""
    text = main("explain", "chat-70b", "--at", "2026-11-16T09:00", *AT, cwd=published.base).out
    demand, usable, required = re.search(r"([\d,]+) / ([\d,]+) = ([\d.]+);", text).groups()
    demand, usable, required = (float(each.replace(",", "")) for each in (demand, usable, required))
    assert demand / usable == pytest.approx(required, rel=0.002)
    median, share, quantile, low, peak, total = re.search(
        r"together    \(([\d,]+) \+ ([\d.]+) x \(([\d,]+) - ([\d,]+)\)\) x ([\d.]+) = ([\d,]+)/s", text
    ).groups()
    median, quantile, low, total = (float(each.replace(",", "")) for each in (median, quantile, low, total))
    assert (low, total) == (median, demand)
    assert (median + float(share) * (quantile - low)) * float(peak) == pytest.approx(total, rel=0.001)
    classes = re.search(r"classes     (.*)", text)[1]
    rates, medians = re.findall(r"([\d,]+)/s", classes), re.findall(r"median ([\d,]+)", classes)
    assert sum(float(each.replace(",", "")) for each in rates) == pytest.approx(quantile, abs=1.5)
    assert sum(float(each.replace(",", "")) for each in medians) == pytest.approx(median, abs=1.5)
    with_margin, replicas = re.search(r"minimum 10 %: ([\d.]+) -> (\d+) replicas", text).groups()
    assert float(with_margin) == pytest.approx(required * 1.1, abs=0.02)
    assert int(replicas) - 1 < float(with_margin) <= int(replicas)


def test_it_names_the_step_whose_reason_was_published_where_that_is_another(main, published):
    """Hours of one floor carry the reason of the most demanding; each is explained by its own."""
    schedule = read_schedule(published.output / "schedule.json")
    with open_store(published.store_path) as store:
        rows = read_floors(store, f"plan-{schedule.issued_at:%Y%m%dT%H%M%SZ}").filter(pool="chat-70b")
    for window in schedule.pools["chat-70b"].windows:
        within = rows.filter(pl.col("window_start").is_between(window.start, window.end, closed="left"))
        hardest = within.sort("required_replicas", descending=True, maintain_order=True)
        if hardest["required_replicas"][-1] < window.reason.required_replicas - 0.01:
            break
    window, hardest = window.model_copy(update={"start": hardest["window_start"][0]}), hardest["window_start"]
    for moment, of in ((hardest[0], None), (hardest[-1], hardest[0])):
        words = ("explain", "chat-70b", "--at", f"{moment:%Y-%m-%d %H:%M}", *AT)
        said = json.loads(main(*words, "--json", cwd=published.base).out)
        assert said["published_reason_of"] == (of and f"{of:%Y-%m-%dT%H:%M:%SZ}")
        assert (said["reason"]["required_replicas"] == window.reason.required_replicas) is (of is None)
        text = main(*words, cwd=published.base).out
        line = f"published reason is that of {window.start:%H:%M} UTC: {window.reason.required_replicas:.2f} replicas\n"
        assert (line in text) is (of is not None)


def test_a_zone_is_understood_and_shown(main, published, reconfigure):
    project = reconfigure(published, "mode: advisory", "mode: advisory\nzone: Europe/Berlin")
    text = main("explain", "chat-70b", "--at", "2026-11-16T13:00+01:00", *AT, cwd=project.base).out
    assert text.startswith("chat-70b at 2026-11-16 12:00 UTC (13:00 Europe/Berlin): floor ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chat-7b",), "did you mean `chat-70b`?"),
        (("elephant",), "use one of: chat-70b, code-8b"),
        (("chat-70b", "--at", "2026-11-17T09:00"), "from 2026-11-16T09:00:00Z to before 2026-11-16T21:00:00Z"),
        (("chat-70b", "--at", "2026-11-16T08:00"), "nothing was published by 2026-11-16T08:00:00Z"),
        (("chat-70b", "--at", "2026-11-16T08:00"), "version 1, issued 2026-11-16T09:00:00Z: give --at 2026-11-16T09:"),
        (("chat-7b", "--at", "2026-11-16T08:00"), "no pool chat-7b that classes are planned on"),
        (("chat-70b", "--now", "2026-11-16T08:00"), "give --now 2026-11-16T09:00:00Z or later"),
    ],
)
def test_what_it_cannot_find_it_names(main, published, words, says):
    ran = main("explain", *AT, *words, cwd=published.base)
    assert ran.code == 7
    assert says in ran.err
    assert "remedy:" in ran.err


def test_it_explains_the_fallback(main, project, live, now):
    live(project, now, "plan", "publish")
    text = main("explain", "chat-70b", *AT, cwd=project.base).out
    assert text.startswith("chat-70b at 2026-11-16 09:00 UTC: floor 30\n")
    assert "demand of agent, chat is not known" in text
    assert text.endswith("  recomputed  30, as published\n")


def test_what_is_configured_otherwise_since_is_told_and_the_floor_still_explained(main, published, reconfigure):
    before = main("explain", "chat-70b", *AT, cwd=published.base).out
    project = reconfigure(published, "prefill_tokens_per_s: 1600", "prefill_tokens_per_s: 3200")
    after = main("explain", "chat-70b", *AT, cwd=project.base).out
    changed = "  changed     settings since it was published: capacity.prefill_tokens_per_s 1600 -> 3200\n"
    assert after.replace(changed, "") == before
    assert changed in after
    told = json.loads(main("explain", "chat-70b", *AT, "--json", cwd=project.base).out)
    assert told["changed_settings"] == {"capacity.prefill_tokens_per_s": [1600.0, 3200.0]}


def test_a_pool_that_is_no_longer_configured_is_still_explained(main, published):
    published.file.write_text(published.file.read_text().replace("chat-70b", "chat-72b"))
    ran = main("explain", "chat-70b", *AT, cwd=published.base)
    assert "  changed     settings since it was published: pool chat-70b -> none\n" in ran.out
    assert ran.out.rstrip().endswith("as published")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("horizon: 12h", "horizon: 6h"),
        ("bounds: {min: 1, max: 60}\n    fallback_replicas: 30", "bounds: {min: 20, max: 60}"),
    ],
)
def test_a_plan_made_since_does_not_change_what_was_published(main, published, live, now, reconfigure, old, new):
    """Planned again under another configuration, not published: the publication is still what is explained."""
    due = floor_due(read_schedule(published.output / "schedule.json"), "chat-70b", now + 9 * HOUR)
    before = published.file.read_text()
    live(reconfigure(published, old, new), now, "plan")
    published.file.write_text(before)
    ran = main("explain", "chat-70b", "--at", "2026-11-16T18:00", *AT, cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    assert f": floor {due.min_replicas}\n" in ran.out
