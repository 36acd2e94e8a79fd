"""How far sources are read, and which classes have nothing, as `floorcast status` tells."""

from __future__ import annotations

import json
import re
from datetime import timedelta

from store.connection import open_store
from store.watermarks import write_watermarks

SQL = """\
  - name: {name}
    kind: sql
    query: SELECT * FROM log WHERE at >= $start AND at < $end
    columns: {{time: at, tokens_in: i, tokens_out: o}}
    class: chat
"""


def test_each_source_says_how_far_it_is_read_and_each_class_is_listed(main, published, now, reconfigure):
    more = SQL.format(name="gateway") + SQL.format(name="unread")
    project = reconfigure(published, "pools:\n  chat-70b:", f"{more}pools:\n  chat-70b:")
    reconfigure(project, "  agent: {kind", "  new: {pools: [chat-70b]}\n  agent: {kind")
    until = now - timedelta(minutes=25)
    with open_store(published.store_path) as store:
        write_watermarks(store, "gateway", {"": "a"}, {"": until})
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    shown = main("status", *at, cwd=published.base).out
    assert re.search(r"^source +kind +read until +age *$", shown, re.MULTILINE)
    assert re.search(r"^history +trace +read whole each time +- *$", shown, re.MULTILINE)
    assert re.search(r"^gateway +sql +2026-11-16 08:35 UTC +25m *$", shown, re.MULTILINE)
    assert re.search(r"^unread +sql +- +- *$", shown, re.MULTILINE)
    assert re.search(r"^new +0 +- +- +- +- +- *$", shown, re.MULTILINE)
    found = json.loads(main("status", *at, "--json", cwd=published.base).out)
    assert [(one["source"], one["watermark"], one["age_s"]) for one in found["sources"]] == [
        ("history", None, None),
        ("gateway", "2026-11-16T08:35:00Z", 1500),
        ("unread", None, None),
    ]
    assert [(one["workload_class"], one["steps"] > 0) for one in found["classes"]] == [
        ("agent", True), ("chat", True), ("code", True), ("new", False),
    ]  # fmt: skip
    new = {"first_step": None, "last_step": None, "steps": 0, "age_s": None, "model_in": None, "model_out": None}
    assert found["classes"][-1] == {"workload_class": "new"} | new


def test_data_of_the_future_are_not_called_new(main, published, now):
    """The newest step ends at `now`; asked about two hours before, it is that far ahead."""
    shown = main("status", "--now", f"{now - timedelta(hours=2):%Y-%m-%dT%H:%M}", cwd=published.base).out
    assert re.search(r"^chat .* 2026-11-16 08:00 UTC +2h in the future +", shown, re.MULTILINE)
    shown = main("status", "--now", f"{now:%Y-%m-%dT%H:%M}", cwd=published.base).out
    assert re.search(r"^chat .* 2026-11-16 08:00 UTC +0s +", shown, re.MULTILINE)
