"""What publishers did, as commands print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.cli.output import say, say_table

if TYPE_CHECKING:
    from pipelines.publishers.outcome import Outcome

SHOWN = 40
"""Rows of a table; the rest is counted, and is in `publishers.json`."""


def say_outcomes(outcomes: Sequence[Outcome]) -> None:
    """One row for each publisher and pool, what needs a person first. Nothing where there are no publishers."""
    from pipelines.publishers.outcome import AT_FAULT

    if not outcomes:
        return
    urgent = [*AT_FAULT, "left_above", "would_change", "applied", "written", "unchanged"]
    ordered = sorted(outcomes, key=lambda one: (urgent.index(one.did), one.publisher, one.pool))
    would = any(one.did == "would_change" for one in outcomes)
    say("\npublishers" + (", advisory: nothing outside the output folder was changed" if would else "") + ":")
    say_table(
        ("publisher", "pool", "did", "before", "after", "at", "note"),
        (
            (
                one.publisher,
                "all" if one.pool == "*" else one.pool,
                one.did.replace("_", " "),
                "-" if one.before is None else one.before,
                "-" if one.after is None else one.after,
                f"{one.at:%Y-%m-%d %H:%M:%S} UTC",
                " ".join(one.note.split()),
            )
            for one in ordered[:SHOWN]
        ),
    )
    if len(ordered) > SHOWN:
        left = Counter(one.did.replace("_", " ") for one in ordered[SHOWN:])
        say("and " + ", ".join(f"{count:,} {did}" for did, count in left.items()) + ": see publishers.json")
