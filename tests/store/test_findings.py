"""Findings: replaced as a whole, read back by time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from floorcast.columns import FINDINGS, empty
from floorcast.errors import DataError
from store.connection import Store
from store.findings import read_findings, replace_findings

HOUR = timedelta(hours=1)


def test_what_is_written_is_all_there_is(store: Store, findings, t0: datetime) -> None:
    first = findings({}, {"kind": "gap", "masked": False, "severity": "info", "workload_class": "chat"})
    replace_findings(store, first)
    assert read_findings(store).sort("kind").equals(first.sort("kind"))
    second = findings({"kind": "partial"})
    replace_findings(store, second)
    assert read_findings(store).equals(second)
    replace_findings(store, empty(FINDINGS))
    assert read_findings(store).is_empty()
    assert read_findings(store).schema == dict(FINDINGS)


def test_only_what_began_before_the_time_is_read(store: Store, findings, t0: datetime) -> None:
    replace_findings(store, findings(*({"start": t0 + n * HOUR, "end": t0 + 9 * HOUR} for n in range(3))))
    assert read_findings(store, at=t0 + 2 * HOUR)["start"].to_list() == [t0, t0 + HOUR]
    assert read_findings(store, at=t0).is_empty()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"severity": "fatal"}, "severity is neither info nor warning"),
        ({"end": datetime.fromisoformat("2026-11-02T00:00:00Z")}, "end is not after start"),
        ({"evidence": None}, "evidence is null"),
        ({"kind": "outage"}, "the key is repeated"),
    ],
)
def test_bad_findings_are_refused_and_the_old_ones_stay(store: Store, findings, fault: dict, message: str) -> None:
    before = findings({"kind": "spike"})
    replace_findings(store, before)
    with pytest.raises(DataError, match=message):
        replace_findings(store, findings({}, {"kind": "gap"} | fault))
    assert read_findings(store).equals(before)
