"""Rejected rows of inputs, by source."""

from __future__ import annotations

import pytest

from floorcast.columns import REJECTS, empty
from floorcast.errors import DataError
from store.connection import Store
from store.rejects import read_rejects, replace_rejects


def test_import_again_replaces_the_rejects_of_that_source_only(store: Store, rejects) -> None:
    replace_rejects(store, "prod", rejects({"row_number": 1}, {"row_number": 2}))
    replace_rejects(store, "lab", rejects({"source": "lab", "raw": None}))
    replace_rejects(store, "prod", rejects({"row_number": 3}))
    assert read_rejects(store, "prod").equals(rejects({"row_number": 3}))
    assert read_rejects(store).equals(rejects({"source": "lab", "raw": None}, {"row_number": 3}))
    assert read_rejects(store, "absent").equals(empty(REJECTS))


def test_clean_import_empties_the_rejects(store: Store, rejects) -> None:
    replace_rejects(store, "prod", rejects({}))
    replace_rejects(store, "prod", empty(REJECTS))
    assert read_rejects(store).is_empty()


def test_one_row_may_be_rejected_for_two_reasons(store: Store, rejects) -> None:
    both = rejects({"reason": "absurd"}, {"reason": "negative"})
    replace_rejects(store, "prod", both)
    assert read_rejects(store).equals(both)


def test_rows_of_another_source_are_refused(store: Store, rejects) -> None:
    with pytest.raises(DataError, match="source is not prod in 1 of 2 rows, first at source=lab"):
        replace_rejects(store, "prod", rejects({}, {"source": "lab"}))
