"""Every error floorcast raises on purpose.

FloorcastError            base; carries what was wrong, where, and the remedy
├── ConfigError           the configuration file (exit 2)
├── DataError             an input file or its rows (exit 3)
├── StoreError            the database (exit 4)
│   ├── StoreLockedError  another process holds it
│   └── StoreNewerError   written by a newer floorcast
├── LeakageError          a model asked for data past its cutoff (exit 5)
├── ForecastError         nothing to forecast from (exit 5)
├── PublishError          a publication could not be written or read (exit 6)
└── NotFoundError         a pool, class, time or file that does not exist (exit 7)
"""

from __future__ import annotations


class FloorcastError(Exception):
    """Base of all errors a user may see.

    `what` says what was wrong, `where` names the file, key, row or process, `remedy` says what to do.
    """

    exit_code = 1

    # By place too, since that is how an error that comes out of a worker process is made again.
    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(what, where, remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


class ConfigError(FloorcastError):
    """The configuration cannot be used. Holds one line per problem found."""

    exit_code = 2


class DataError(FloorcastError):
    """An input file cannot be read, or too many of its rows cannot."""

    exit_code = 3


class StoreError(FloorcastError):
    """The database cannot be used."""

    exit_code = 4


class StoreLockedError(StoreError):
    """Another process holds the database."""


class StoreNewerError(StoreError):
    """The database was written by a newer floorcast and is left untouched."""


class LeakageError(FloorcastError):
    """A model asked for data past its cutoff."""

    exit_code = 5


class ForecastError(FloorcastError):
    """There is nothing a forecast could be made from."""

    exit_code = 5


class PublishError(FloorcastError):
    """A publication cannot be written or read."""

    exit_code = 6


class NotFoundError(FloorcastError):
    """A pool, class, time or file that does not exist."""

    exit_code = 7
