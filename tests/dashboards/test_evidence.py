"""Evidence of findings, in words."""

from __future__ import annotations

import pytest

from dashboards.evidence import in_words

LEVELS = {"tokens_per_s": 4543.0, "usual_tokens_per_s": 2860.0}


@pytest.mark.parametrize(
    ("kind", "evidence", "said"),
    [
        ("outage", {"steps": 1}, "exactly 0 for 1 step"),
        (
            "outage",
            {"steps": 11, "usual_tokens_per_s": 0.5},
            "exactly 0 for 11 steps, where other days have 0.5 tokens/s at that time",
        ),
        ("gap", {"steps_missing": 1200}, "no data for 1,200 steps"),
        ("gap", {"gaps": 14, "steps_missing": 48}, "no data for 48 steps, in 14 gaps"),
        ("partial", {"observed_fraction": 0.2}, "the least observed step was so for 20% of it"),
        (
            "flat_line",
            {"steps": 7, "tokens_in": 1520.5, "tokens_out": 30.0},
            "7 steps of exactly 1,520 tokens/s in and 30 out",
        ),
        (
            "unit_jump",
            LEVELS | {"factor": 1003.0, "came_back": "yes"},
            "1,003 times as much until it came back: 4,543 tokens/s against 2,860",
        ),
        (
            "unit_jump",
            LEVELS | {"factor": 0.01667, "came_back": "no"},
            "0.01667 times as much and has not come back: 4,543 tokens/s against 2,860",
        ),
        (
            "level_shift",
            LEVELS | {"factor": 1.553},
            "1.55 times the same hours of other weeks: 4,543 tokens/s against 2,860",
        ),
        (
            "spike",
            LEVELS | {"z": 12.4},
            "4,543 tokens/s against 2,860 in the hours around it; 12 times the usual spread away",
        ),
        (
            "duplicated_interval",
            {"steps": 12, "repeats": "2026-11-02T10:00Z"},
            "12 steps exactly as from 2026-11-02T10:00Z on",
        ),
        ("duplicated_interval", {"steps": 900, "share": 0.25}, "900 steps repeat earlier ones, 25% of all"),
        ("capacity_contradicted", {"load": 1.3, "says": "too dear", "remedy": "raise it"}, "too dear; raise it"),
        ("clock_skew", {"prod_rows": 12, "prod_ahead_h": "over 700"}, "prod rows 12, prod ahead h over 700"),
        ("spike", {"factor": 3.0}, "factor 3"),
        ("unheard_of", {}, ""),
    ],
)
def test_each_kind_of_finding_is_said_in_words(kind, evidence, said):
    assert in_words(kind, evidence) == said
