"""Numbered migrations and the ledger of those applied.

A migration and its ledger row are one transaction, so a database is always at a whole version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import duckdb

from floorcast.errors import StoreError, StoreNewerError

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    checksum VARCHAR NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
)
"""


@dataclass(frozen=True)
class Migration:
    """One step of the schema: the number and name of its file, and its statements."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def load_migrations() -> tuple[Migration, ...]:
    """The migrations of this floorcast, in order, from files named `0001_what_it_does.sql`."""
    migrations = []
    for file in (resources.files("store") / "migrations").iterdir():
        if file.name.endswith(".sql"):
            number, _, name = file.name.removesuffix(".sql").partition("_")
            migrations.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(migrations, key=lambda migration: migration.version))


def pending(
    connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration], *, where: str
) -> tuple[Migration, ...]:
    """The migrations not yet applied. Only reads.

    Raises StoreNewerError where the ledger has a version past ours, and StoreError where an applied migration
    has changed since or the tables are not floorcast's.
    """
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "schema_migrations" not in tables:
        if tables:
            raise StoreError(
                f"the database holds tables that floorcast did not make ({', '.join(sorted(tables)[:3])})",
                where=where,
                remedy="set store.path to a file of floorcast's own",
            )
        return tuple(migrations)
    applied = dict(connection.execute("SELECT version, checksum FROM schema_migrations").fetchall())
    known = {migration.version: migration.checksum for migration in migrations}
    if applied and max(applied) > max(known):
        raise StoreNewerError(
            f"the database is at migration {max(applied)}, this floorcast knows them up to {max(known)}",
            where=where,
            remedy="upgrade floorcast, or set store.path to another file; the database was left untouched",
        )
    for version, checksum in sorted(applied.items()):
        if known.get(version) != checksum:
            raise StoreError(
                f"migration {version} is not the one that was applied to this database",
                where=where,
                remedy="run the floorcast that wrote the database, or set store.path to another file",
            )
    return tuple(migration for migration in migrations if migration.version not in applied)


def migrate(connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration], *, where: str) -> None:
    """Apply what is pending, each migration in a transaction of its own. Raises as `pending` does.

    A migration that fails raises StoreError and leaves the database at the version before it.
    """
    for migration in pending(connection, migrations, where=where):
        connection.begin()
        try:
            connection.execute(_LEDGER)
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO schema_migrations VALUES (?, ?, ?, now())",
                [migration.version, migration.name, migration.checksum],
            )
            connection.commit()
        except duckdb.Error as error:
            connection.rollback()
            raise StoreError(
                f"migration {migration.version} ({migration.name}) failed: {error}",
                where=where,
                remedy="free disk space if it is full; the database is still at the version before",
            ) from error
