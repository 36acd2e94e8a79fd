"""Sources over files and over a real PostgreSQL, which the tests start in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from adbc_driver_postgresql import dbapi

from floorcast.columns import DEMAND, empty
from floorcast.source import SqlSource
from pipelines.sources.chunk import Chunk
from pipelines.sources.sql import import_sql

PASSWORD = "s3cret%40word"
COLUMNS = {"time": "t", "tokens_in": "i", "tokens_out": "o", "class": "k"}
CLASSES = {"a": "chat", "b": "code"}
FILES = "SELECT * FROM read_parquet('logs/*.parquet') WHERE t >= $start AND t < $end"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "server: needs Debian's postgresql")


@pytest.fixture
def source() -> Callable[..., SqlSource]:
    """A source of rows t, i, o, k; keys as keywords, sensible ones left out."""

    def make(**keys: Any) -> SqlSource:
        defaults: dict[str, Any] = {"name": "gateway", "kind": "sql", "query": FILES, "columns": COLUMNS}
        if "class" not in keys:
            defaults["classes"] = CLASSES
        return SqlSource.model_validate(defaults | keys)

    return make


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[Chunk]]:
    """Import all chunks, on a 5-minute grid unless said otherwise, with `tmp_path` as the configuration's folder."""

    def call(source: SqlSource, start: datetime, end: datetime, step: timedelta = timedelta(minutes=5)) -> list[Chunk]:
        return list(import_sql(source, classes=["chat", "code"], step=step, start=start, end=end, base=tmp_path))

    return call


@pytest.fixture
def whole() -> Callable[[list[Chunk]], pl.DataFrame]:
    """The chunks' demand as one frame, in order of its key."""
    return lambda chunks: pl.concat([empty(DEMAND), *(c.demand for c in chunks)]).sort("workload_class", "step_start")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows of t, i, o, k to a Parquet file in `logs`."""

    def call(rows: list[tuple[Any, ...]], name: str = "a.parquet", schema: dict[str, Any] | None = None) -> Path:
        file = tmp_path / "logs" / name
        file.parent.mkdir(exist_ok=True)
        shape = {"t": pl.Datetime("us", "UTC"), "i": pl.Int64, "o": pl.Int64, "k": pl.String} | (schema or {})
        pl.DataFrame(rows, schema=shape, orient="row").write_parquet(file)
        return file

    return call


@dataclass
class Server:
    """A PostgreSQL whose superuser is `floor`; its own zone is not UTC, as on many machines."""

    folder: Path
    port: int
    programs: Path

    def url(self, user: str = "floor", password: str = PASSWORD, database: str = "postgres") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, sql: str) -> list[Any]:
        with dbapi.connect(self.url(), autocommit=True) as con, con.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def call(self, program: str, *options: str) -> None:
        """As the user `postgres` where we are root, since the server refuses to be."""
        user = "postgres" if os.getuid() == 0 else None
        command = [str(self.programs / program), "-D", str(self.folder / "data"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, group=user, cwd=self.folder)

    def start(self) -> None:
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        settings += " -c timezone=America/New_York"
        self.call("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", settings, "start")

    def stop(self) -> None:
        self.call("pg_ctl", "-w", "-m", "immediate", "stop")


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (found and str(found[-1]))
    if not initdb:
        pytest.skip("no PostgreSQL (apt-get install postgresql)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not below pytest's own folder, which no other user may enter, and short, for the socket's sake.
    folder = Path(tempfile.mkdtemp(prefix="floorcast-pg-"))
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD.replace("%40", "@"))
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
            shutil.chown(secret, "postgres")
        server = Server(folder, port, Path(initdb).parent)
        server.call("initdb", "-U", "floor", "-A", "scram-sha-256", "-N", "--pwfile", str(secret), "--locale=C")
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """With an empty table of LiteLLM's columns: times without zone, in UTC, as its Prisma schema has them."""
    _server.run('DROP TABLE IF EXISTS "LiteLLM_SpendLogs"')
    _server.run(
        'CREATE TABLE "LiteLLM_SpendLogs" (request_id TEXT, "startTime" TIMESTAMP(3), "endTime" TIMESTAMP(3), '
        "prompt_tokens INT DEFAULT 0, completion_tokens INT DEFAULT 0, model_group TEXT DEFAULT '', metadata JSONB)"
    )
    return _server
