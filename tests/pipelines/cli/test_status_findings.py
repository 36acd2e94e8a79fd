"""What `floorcast status` says about the quality of demand."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import polars as pl

from floorcast.columns import FINDINGS
from store.connection import open_store
from store.findings import replace_findings

HOUR = timedelta(hours=1)


def finding(kind, name, start, end, *, masked=False, evidence="{}", pool=""):
    return (kind, name, "", start, end, "warning", masked, evidence, pool)


def test_status_shows_findings_of_the_last_seven_days_and_none_that_lie_ahead(main, published, now):
    rows = [
        finding("gap", "chat", now - 30 * HOUR, now - 27 * HOUR, evidence='{"steps_missing": 3}'),
        finding("outage", "", now - 169 * HOUR, now - 167 * HOUR, masked=True, evidence='{"steps": 2}'),
        finding("flat_line", "agent", now - 180 * HOUR, now - 168 * HOUR),
        finding("spike", "agent", now + HOUR, now + 2 * HOUR),
    ]
    with open_store(published.store_path) as store:
        replace_findings(store, pl.DataFrame(rows, schema=dict(FINDINGS), orient="row"))
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    shown = main("status", *at, cwd=published.base).out
    gap = r"^gap +chat +both +2026-11-15 03:00 UTC +2026-11-15 06:00 UTC +no +no data for 3 steps *$"
    assert re.search(gap, shown, re.MULTILINE)
    assert re.search(r"^outage +all +both .* yes +exactly 0 for 2 steps *$", shown, re.MULTILINE)
    assert "flat_line" not in shown, "it ended seven days ago, so it is counted alone"
    assert "findings in the last weeks: flat line 1 (0 masked), gap 1 (0 masked), outage 1 (1 masked)\n" in shown
    assert "spike" not in shown
    found = json.loads(main("status", *at, "--json", cwd=published.base).out)["findings"]
    assert [(one["kind"], one["evidence"]) for one in found] == [
        ("flat_line", {}),
        ("outage", {"steps": 2}),
        ("gap", {"steps_missing": 3}),
    ]


def test_a_contradicted_capacity_is_told_of_its_pool(main, published, now):
    said = '{"capacity_is": "too low", "says": "for 2 h no request waited", "remedy": "raise it"}'
    row = finding("capacity_contradicted", "", now - 9 * HOUR, now - HOUR, evidence=said, pool="chat-70b")
    with open_store(published.store_path) as store:
        replace_findings(store, pl.DataFrame([row], schema=dict(FINDINGS), orient="row"))
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    shown = main("status", *at, cwd=published.base).out
    assert "capacity of chat-70b contradicted: for 2 h no request waited\n  raise it\n" in shown
    assert "findings about the demand" not in shown
    assert "capacity contradicted: for 2 h no request waited; raise it" in main("check", *at, cwd=published.base).out


def test_status_without_findings_says_none(main, published, now):
    with open_store(published.store_path) as store:
        store.execute("DELETE FROM findings")
    shown = main("status", "--now", f"{now:%Y-%m-%dT%H:%M}", cwd=published.base).out
    assert "findings in the last weeks: none\n" in shown
    assert "evidence" not in shown
