"""What `floorcast status` says of drift."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import polars as pl

from floorcast.columns import DRIFT
from store.connection import open_store
from store.drift import write_drift

HOUR = timedelta(hours=1)


def found(store, name, as_of, cutoff):
    rows = [(name, "tokens_in", as_of, "coverage_lost", cutoff, 0.8, 0.95, 9.0, "80 % of 95 % over 9h")]
    write_drift(store, f"forecast-{name}", as_of, pl.DataFrame(rows, schema=dict(DRIFT), orient="row"))


def test_status_shows_drift_of_the_last_seven_days_and_whether_a_fit_has_seen_it(main, published, now):
    """The fits' cutoff is `now`."""
    with open_store(published.store_path) as store:
        found(store, "chat", now + 8 * HOUR, now + 7 * HOUR)
        found(store, "agent", now - 2 * HOUR, now - 2 * HOUR)
        found(store, "code", now - 164 * HOUR, now - 164 * HOUR)
    at = ("--now", f"{now + 8 * HOUR:%Y-%m-%dT%H:%M}")
    shown = main("status", *at, cwd=published.base).out
    chat = r"^chat +tokens_in +coverage_lost +2026-11-16 17:00 UTC +80 % of 95 % over 9h +by the next cycle *$"
    assert re.search(chat, shown, re.MULTILINE)
    assert re.search(r"^agent +tokens_in +coverage_lost .* yes *$", shown, re.MULTILINE)
    told = json.loads(main("status", *at, "--json", cwd=published.base).out)["drift"]
    assert [(one["workload_class"], one["refitted"], one["value"]) for one in told] == [
        ("agent", True, 0.8),
        ("chat", False, 0.8),
    ]


def test_status_without_drift_has_no_table_of_it(main, published, now):
    assert "drift" not in main("status", "--now", f"{now:%Y-%m-%dT%H:%M}", cwd=published.base).out
