"""`floorcast backtest`: forecasts of the stored past made again, and whether they pay."""

from __future__ import annotations

import json
import re

import pytest

NOW = "2026-11-16T09:00"


METHODS = ["floorcast", "last_value", "seasonal_naive"]


def test_it_judges_both_spans_of_both_metrics_and_stores_nothing(floorcast, published, dump):
    before = dump(published)
    ran = floorcast("backtest", "code", "--days", "1", "--now", NOW, "--json", cwd=published.base)
    assert dump(published) == before
    assert (ran.code, ran.err) == (0, "")
    said = json.loads(ran.out)
    assert (said["start"], said["end"]) == ("2026-11-15T09:00:00Z", "2026-11-16T09:00:00Z")
    judged = said["judged"]
    spans = [(one["workload_class"], one["metric"], one["span"]) for one in judged]
    assert spans == [("code", metric, span) for span in ("lead", "day_ahead") for metric in ("tokens_in", "tokens_out")]
    assert all([row["method"] for row in one["figures"]] == METHODS for one in judged)
    # 24 origins; the lead window of three steps is not whole from the last two.
    assert [one["targets"] for one in judged[:2]] == [22, 22]
    assert (said["left_out"], said["failed"]) == ({}, {})
    lead = judged[0]
    ours, *naive = (row["pinball"] for row in lead["figures"])
    assert lead["ratio"] == pytest.approx(ours / min(naive))
    assert (lead["days"], lead["worth"]) == (1, "unclear")


def test_a_person_reads_tables_and_verdicts(main, published):
    ran = main("backtest", "code", "--days", "1", "--now", NOW, cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    lines = ran.out.splitlines()
    assert lines[0] == "forecasts of the last 1d to 2026-11-16 09:00 UTC, made again each from what came before it"
    rows = [line.split() for line in lines if line.startswith("code ")]
    assert [row[:3] for row in rows] == [
        ["code", metric, within] for within in ("3h", "24h") for metric in ("in", "out")
    ]
    # WAPE of floorcast is in the fourth column, shares with one place.
    assert all(re.fullmatch(r"\d+\.\d%", row[3]) for row in rows)
    assert sum("of what last value loses" in line or "of what seasonal naive loses" in line for line in lines) == 4
    assert lines[-1] == "whether floors made from these forecasts save GPU-hours is what `floorcast tune` tells"


def test_a_class_without_enough_history_is_left_out(main, published):
    ran = main("backtest", "--days", "1", "--now", "2026-11-07T08:00", cwd=published.base)
    assert ran.code == 3
    assert "chat: 2d23h of demand are stored; 3d are needed, 2d to learn from and 1d to be judged" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("backtest", "nothing"), 7, "no class nothing\n  remedy: name one of chat, agent, code"),
        (("backtest", "--now", "2020-01-01"), 3, "chat: no demand of it is stored"),
        (("backtest", "--now", "2026-11-25"), 3, "chat: its newest demand is of 2026-11-16T09:00:00Z"),
        (("backtest", "--days", "0"), 2, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_judged_is_told(main, published, words, code, said):
    ran = main(*words, cwd=published.base)
    assert ran.code == code
    assert said in ran.err
