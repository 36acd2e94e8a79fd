"""The record of publications and their versions."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime, timedelta

import pytest

from floorcast.errors import DataError
from store.connection import Store
from store.publications import (
    PublicationRecord,
    latest_publication,
    list_publications,
    record_publication,
)

STEP = timedelta(minutes=5)


@pytest.fixture
def first(t0: datetime) -> PublicationRecord:
    return PublicationRecord(1, "r1", t0, t0 + timedelta(hours=2), "advisory", "sha256:00", '{"pools": {"é": 1}}')


def test_record_comes_back_whole(store: Store, first: PublicationRecord) -> None:
    assert latest_publication(store) is None
    record_publication(store, first)
    assert latest_publication(store) == first


def test_publishing_again_replaces(store: Store, first: PublicationRecord) -> None:
    record_publication(store, first)
    again = replace(first, run_id="r2", schedule="{}")
    for _ in "12":
        record_publication(store, again)
    assert latest_publication(store) == again
    assert list_publications(store).height == 1


def test_version_of_another_publication_is_refused(store: Store, first: PublicationRecord) -> None:
    record_publication(store, first)
    with pytest.raises(DataError, match="version 1 is already the publication of 2026-11-02T00:00:00Z"):
        record_publication(store, replace(first, issued_at=first.issued_at + STEP))
    assert list_publications(store).height == 1


def test_before_is_strict_and_at_is_not(store: Store, first: PublicationRecord) -> None:
    second = replace(first, version=2, issued_at=first.issued_at + STEP)
    record_publication(store, second)
    record_publication(store, first)
    for before, at, expected in [
        (None, None, second),
        (second.issued_at, None, first),
        (first.issued_at, None, None),
        (None, second.issued_at, second),
        (None, second.issued_at - timedelta(microseconds=1), first),
        (None, first.issued_at - STEP, None),
        (second.issued_at, second.issued_at, first),
    ]:
        assert latest_publication(store, before=before, at=at) == expected


def test_list_is_by_version_without_the_documents(store: Store, first: PublicationRecord) -> None:
    second = replace(first, version=2, issued_at=first.issued_at - STEP)
    record_publication(store, second)
    record_publication(store, first)
    rows = list_publications(store).rows(named=True)
    assert rows == [{k: v for k, v in asdict(record).items() if k != "schedule"} for record in (first, second)]


def test_naive_time_is_refused(store: Store, first: PublicationRecord) -> None:
    with pytest.raises(DataError, match=r"valid_until: .* has no zone"):
        record_publication(store, replace(first, valid_until=first.valid_until.replace(tzinfo=None)))
    assert latest_publication(store) is None
