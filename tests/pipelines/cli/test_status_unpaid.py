"""What `floorcast status` says of classes in which no forecast pays."""

from __future__ import annotations

import json
import re

import duckdb


def test_status_names_what_no_forecast_pays_for_with_its_figures(main, published, now):
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    found = "pinball 42 tokens/s, 1.01 of last value's with the same margins"
    with duckdb.connect(str(published.store_path)) as store:
        store.execute("UPDATE fits SET reason = replace(reason, 'no forecast pays', 'pays')")
    assert "no forecast pays" not in main("status", *at, cwd=published.base).out
    reason = f"no forecast pays: {found}; last_value 0.60, blend 0.40"
    with duckdb.connect(str(published.store_path)) as store:
        store.execute(
            "UPDATE fits SET reason = ? WHERE workload_class = 'chat' AND metric = 'tokens_out' AND horizon = 'lead'",
            [reason],
        )
    shown = main("status", *at, cwd=published.base).out
    assert "no forecast pays here" in shown
    assert re.search(rf"^chat +tokens_out +{re.escape(found)} ", shown, re.MULTILINE)
    (told,) = json.loads(main("status", *at, "--json", cwd=published.base).out)["no_forecast_pays"]
    assert (told["workload_class"], told["metric"], told["found"]) == ("chat", "tokens_out", found)
