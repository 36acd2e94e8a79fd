"""The schedule in force: the newest that was published, and the last good one while that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from floorcast.errors import PublishError
from floorcast.types import FloorSchedule
from floorcast.units import format_time
from pipelines.publishers.schedule import KEPT, LATEST, published_versions, read_schedule
from pipelines.service.board import Publication

Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a file is replaced or written to; None where it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


@dataclass
class PublicationReader:
    """Reads a folder's `schedule.json` each time it has changed."""

    folder: Path
    _stamp: Stamp | None = None
    _read: bool = field(default=False, init=False)
    _last: Publication = field(default=Publication(None), init=False)
    _refused: bool = field(default=False, init=False)
    """Whether the file there now is whole, but older than what is in force."""

    def read(self, now: datetime) -> Publication:
        """The schedule in force and what is wrong with the file there now. A file that is missing, damaged or of a
        newer schema leaves the one read before in force; after a start that is the newest kept version which is whole
        and not issued after `now`. So does one of an older version, while the newer is valid.
        """
        path = self.folder / LATEST
        stamp = stamp_of(path)
        if self._read and stamp == self._stamp and not (self._refused and self._last.validity(now) != "valid"):
            return self._last
        self._refused = False
        try:
            self._last = self._newer(read_schedule(path), now)
        except PublishError as error:
            fault = f"{error.where}: {error.what}"
            known, behind = self._last.schedule, self._last.behind
            if known is None:
                known, behind = self._kept(now), True
            if known is not None:
                fault += f"; version {known.version} stays in force"
            self._last = Publication(known, fault, behind=behind)
        self._stamp, self._read = stamp, True
        return self._last

    def _newer(self, found: FloorSchedule, now: datetime) -> Publication:
        """`found`, or what is in force, or else kept, if that is of a newer version and valid: someone put an old file
        back, and it may ask for less."""
        known, behind = self._last.schedule, self._last.behind
        if known is None:
            known, behind = self._kept(now, above=found.version), True
        if known is None or known.version <= found.version or not known.issued_at <= now < known.valid_until:
            return Publication(found)
        self._refused = True
        fault = (
            f"{self.folder / LATEST}: version {found.version} is older than one that is valid until "
            f"{format_time(known.valid_until)}; version {known.version} stays in force"
        )
        return Publication(known, fault, behind=behind)

    def _kept(self, now: datetime, *, above: int = 0) -> FloorSchedule | None:
        for version in sorted(published_versions(self.folder), reverse=True):
            if version <= above:
                return None
            try:
                schedule = read_schedule(self.folder / KEPT / f"v{version:06d}.json")
            except PublishError:
                continue
            if schedule.issued_at <= now:
                return schedule
        return None
