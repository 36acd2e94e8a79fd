"""What the rows of a database were made with."""

from __future__ import annotations

from datetime import timedelta

from floorcast.errors import StoreError
from floorcast.units import format_duration
from store.connection import Store


def claim_step(store: Store, step: timedelta) -> None:
    """Remember the step that this database's demand is in, or check that it is the same.

    A row does not say how long its step is, so rows of another step would be read as other rates. Raises
    StoreError where it holds another.
    """
    seconds = step.total_seconds()
    held = store.read("SELECT step_s FROM settings")
    if held.is_empty():
        with store.transaction():
            store.execute("INSERT INTO settings (step_s) VALUES ($step_s)", {"step_s": seconds})
    elif held["step_s"][0] != seconds:
        raise StoreError(
            f"holds demand in steps of {format_duration(held['step_s'][0])}, "
            f"the configuration says {format_duration(step)}",
            where=str(store.path),
            remedy="put the old `step` back, or name a new `store.path` and ingest again",
        )
