"""Fits and scores: latest at or before a time, and replacement."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from floorcast.errors import DataError
from store.connection import Store
from store.fits import read_fits, read_scores, write_fits

HOUR = timedelta(hours=1)


def test_latest_cutoff_at_or_before_by_class_and_metric(store: Store, fits, scores, t0: datetime) -> None:
    """Classes are refitted at different times; each gives its own latest."""
    times = [("chat", "tokens_in", 0), ("chat", "tokens_in", 2), ("chat", "tokens_out", 1), ("agent", "tokens_in", 3)]
    keys = [{"workload_class": name, "metric": metric, "cutoff": t0 + n * HOUR} for name, metric, n in times]
    write_fits(store, "r1", fits(*keys), scores(*keys))
    chat_in_0, chat_in_2, chat_out_1, agent_in_3 = keys
    for at, expected in [
        (t0 - HOUR, []),
        (t0, [chat_in_0]),
        (t0 + 2 * HOUR - timedelta(microseconds=1), [chat_in_0, chat_out_1]),
        (t0 + 2 * HOUR, [chat_in_2, chat_out_1]),
        (t0 + 9 * HOUR, [agent_in_3, chat_in_2, chat_out_1]),
    ]:
        assert read_fits(store, at=at).equals(fits(*expected))
        assert read_scores(store, at=at).equals(scores(*expected))


def test_refit_at_the_same_cutoff_leaves_what_one_fit_leaves(store: Store, fits, scores) -> None:
    """A candidate that the second fit no longer judged does not linger; other classes stay."""
    other = {"workload_class": "agent"}
    write_fits(store, "r0", fits(other), scores(other))
    write_fits(store, "r1", fits({"model": "theta"}), scores({"model": "theta"}, {"model": "last_value"}))
    for _ in "12":
        write_fits(store, "r2", fits({}), scores({}, {"model": "theta", "chosen": False}))
    assert read_fits(store, at=fits({})["cutoff"][0]).equals(fits(other, {}))
    assert read_scores(store, at=fits({})["cutoff"][0]).equals(scores(other, {}, {"model": "theta", "chosen": False}))


def test_disqualified_candidate_has_nulls_and_an_error(store: Store, fits, scores, t0: datetime) -> None:
    row = {"pinball": None, "wape": None, "bias": None, "chosen": False, "error": "shorter than two seasons"}
    write_fits(store, "r1", fits({}), scores(row))
    assert read_scores(store, at=t0).equals(scores(row))


def test_fits_and_scores_are_written_together_or_not_at_all(store: Store, fits, scores, t0: datetime) -> None:
    with pytest.raises(DataError, match="scores: pinball is NaN"):
        write_fits(store, "r1", fits({}), scores({"pinball": float("nan")}))
    assert read_fits(store, at=t0).is_empty()
