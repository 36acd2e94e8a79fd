"""The publication that a command is about."""

from __future__ import annotations

from datetime import datetime

from floorcast.errors import NotFoundError
from floorcast.units import format_time
from store.connection import Store
from store.publications import PublicationRecord, latest_publication


def published_by(store: Store, moment: datetime, *, option: str = "--now") -> PublicationRecord:
    """The publication last issued by `moment`.

    Raises NotFoundError, which names the newest publication and the time to give with `option` where only later ones
    are there, as when recorded traffic was planned at its own time.
    """
    record = latest_publication(store, at=moment)
    if record is not None:
        return record
    newest = latest_publication(store)
    if newest is None:
        remedy = "run `floorcast cycle` first"
    else:
        issued = format_time(newest.issued_at)
        remedy = f"the newest is version {newest.version}, issued {issued}: give {option} {issued} or later"
    raise NotFoundError(f"nothing was published by {format_time(moment)}", where=str(store.path), remedy=remedy)
