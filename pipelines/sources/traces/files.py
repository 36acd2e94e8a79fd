"""From a path in the configuration to files whose content is what their names say, and to SQL that reads them."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import duckdb
import pyarrow as pa

from floorcast.errors import DataError
from floorcast.units import EPOCH

Kind = Literal["csv", "jsonl", "parquet"]

_MEMORY_LIMIT = "2GB"
SAMPLE = 1000
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_KINDS: dict[str, Kind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_MAGIC = {b"PAR1": "parquet", b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class TraceFile:
    path: Path
    kind: Kind
    compression: str


@contextmanager
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """An in-memory DuckDB of its own: UTC, offline, bounded in memory, spilling to a temporary folder."""
    with (
        TemporaryDirectory(prefix="floorcast-") as spill,
        duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": spill,
            },
        ) as con,
    ):
        con.execute("SET TimeZone = 'UTC'")
        con.execute("SET enable_progress_bar = false")
        yield con


def microseconds(value: datetime | timedelta) -> int:
    """A duration, or a time since the Unix epoch, as whole microseconds."""
    return (value - EPOCH if isinstance(value, datetime) else value) // timedelta(microseconds=1)


def literal(text: str) -> str:
    """An SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(text: str) -> str:
    """A quoted SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def find_files(pattern: str, *, base: Path, kind: Kind, key: str) -> list[TraceFile]:
    """The files of a path or glob, in name order; `kind` is for names whose suffix says nothing.

    Raises DataError for a path that names nothing, a folder, or a file whose content is not what its name says.
    """
    path = base / Path(pattern).expanduser()
    if path.is_dir():
        raise DataError(
            "is a folder, not a file",
            where=str(path),
            remedy=f"name a file or a pattern in `{key}`, as in {path}/*.csv",
        )
    if path.exists():
        paths = [path]
    else:
        relative = path.relative_to(path.anchor)
        paths = sorted(found for found in Path(path.anchor).glob(str(relative)) if found.is_file())
    if not paths:
        raise DataError("no such file", where=str(path), remedy=_nearest(path, key=key))
    return [_identify(found, kind=kind) for found in paths]


def _nearest(path: Path, *, key: str) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either; correct `{key}`"
    present = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    near = difflib.get_close_matches(path.name, present, n=1, cutoff=0.4)
    if near:
        return f"did you mean {path.parent / near[0]}?"
    return f"correct `{key}`; {path.parent} holds {', '.join(present[:10]) or 'no files'}"


def _identify(path: Path, *, kind: Kind) -> TraceFile:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1], "none") if suffixes else "none"
    if compression != "none":
        suffixes.pop()
    file = TraceFile(path, _KINDS.get(suffixes[-1], kind) if suffixes else kind, compression)
    with path.open("rb") as stream:
        head = stream.read(4096)
    if not head:
        raise DataError("the file is empty", where=str(path), remedy="export the trace again, or leave the file out")
    expected = "parquet" if file.kind == "parquet" else compression
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "none")
    if found != expected:
        words = {"none": "uncompressed text or something else"}
        raise DataError(
            f"the name promises {words.get(expected, expected)} but the content is {words.get(found, found)}",
            where=str(path),
            remedy="give the file the suffix of what it is (.csv, .jsonl, .parquet; .gz or .zst after it)",
        )
    if expected == "none" and b"\0" in head:
        raise DataError(
            f"the content is binary, not {file.kind} text in UTF-8",
            where=str(path),
            remedy="save the file as UTF-8 text, or correct the path",
        )
    if compression == "zstd":
        _check_whole(path)
    return file


def _check_whole(path: Path) -> None:
    """DuckDB takes the end of a truncated zstd stream for the end of the data, so look first."""
    try:
        with pa.input_stream(str(path), compression="zstd") as stream:
            while stream.read(1 << 22):
                pass
    except OSError as error:
        raise not_readable(path, "zstd", error) from None


def not_readable(path: Path, kind: str, error: Exception) -> DataError:
    return DataError(
        f"cannot be read as {kind}: {str(error).splitlines()[0]}",
        where=str(path),
        remedy="check that the file is whole (download or export it again) and of that format",
    )


def _sql_path(path: Path) -> str:
    """The path as a literal in which DuckDB sees no pattern."""
    return literal("".join(f"[{char}]" if char in "[*?" else char for char in str(path)))


def lines(file: TraceFile) -> str:
    """SQL relation of one column `line`: the file's lines as they are."""
    return (
        f"read_csv({_sql_path(file.path)}, auto_detect = false, header = false, delim = '\x01', quote = '', "
        f"escape = '', columns = {{'line': 'VARCHAR'}}, strict_mode = false, null_padding = true, "
        f"store_rejects = true, compression = '{file.compression}')"
    )


@dataclass(frozen=True)
class Scan:
    """How SQL reads the wanted columns of one file.

    `relation` has a row per data row. `values` holds an expression for each wanted column, `types` its DuckDB type,
    `malformed` a condition for rows whose parts cannot be told apart, `raw` the row as text.
    `numeric`: the relation with numbers for text where numbers are wanted, which is faster and raises duckdb.Error at
    the first row that is not so. `strict`: a fault anywhere means that rows may have been lost.
    """

    relation: str
    values: tuple[str, ...]
    types: tuple[str, ...]
    malformed: str
    raw: str
    numeric: str | None = None
    strict: bool = False


def scan_file(
    con: duckdb.DuckDBPyConnection,
    file: TraceFile,
    wanted: tuple[str, ...],
    *,
    numbers: Collection[int] = (),
    strict: bool,
) -> Scan:
    """How to read the wanted columns. `numbers`: the positions in `wanted` of those that hold numbers.

    `strict`: a CSV with quotes is read as such, line ends inside quotes included, which is right only if the reader
    finds no fault; else each line is a row, whatever its quotes.

    Raises DataError where the file has no rows, lacks a column, or is not of its format.
    """
    try:
        if file.kind == "parquet":
            return _scan_parquet(con, file, wanted)
        if file.kind == "jsonl":
            return _scan_jsonl(con, file, wanted)
        return _scan_csv(con, file, wanted, numbers=numbers, strict=strict)
    except duckdb.Error as error:
        raise not_readable(file.path, file.kind, error) from None


def _scan_parquet(con: duckdb.DuckDBPyConnection, file: TraceFile, wanted: tuple[str, ...]) -> Scan:
    relation = f"read_parquet({_sql_path(file.path)})"
    described = con.execute(f"DESCRIBE FROM {relation}").fetchall()
    chosen = _choose([row[0] for row in described], wanted, file=file)
    values = tuple(identifier(described[index][0]) for index in chosen)
    raw = "concat_ws(',', " + ", ".join(f"coalesce({value}::VARCHAR, '')" for value in values) + ")"
    return Scan(relation, values, tuple(described[index][1] for index in chosen), "false", raw)


def _scan_jsonl(con: duckdb.DuckDBPyConnection, file: TraceFile, wanted: tuple[str, ...]) -> Scan:
    text = lines(file)
    present = con.execute(
        f"SELECT DISTINCT unnest(json_keys(line)) FROM (FROM {text} LIMIT {SAMPLE}) WHERE json_valid(line) ORDER BY ALL"
    ).fetchall()
    keys = [row[0] for row in present]
    if not keys:
        raise DataError(
            "the first lines are not JSON objects, one a line",
            where=str(file.path),
            remedy="write one JSON object a line, or give the file the suffix of what it is",
        )
    paths = ", ".join(literal('$."' + keys[index] + '"') for index in _choose(keys, wanted, file=file))
    relation = (
        f"(SELECT line, CASE WHEN json_valid(line) THEN json_extract_string(line, [{paths}]) END AS part "
        f"FROM {text} WHERE trim(line) <> '')"
    )
    values = tuple(f"part[{position}]" for position in range(1, len(wanted) + 1))
    return Scan(relation, values, ("VARCHAR",) * len(wanted), "part IS NULL", "line")


def _scan_csv(
    con: duckdb.DuckDBPyConnection,
    file: TraceFile,
    wanted: tuple[str, ...],
    *,
    numbers: Collection[int],
    strict: bool,
) -> Scan:
    sample = con.execute(f"FROM {lines(file)} WHERE line IS NOT NULL LIMIT {SAMPLE}").fetchall()
    if not sample:
        raise DataError("the file holds no text", where=str(file.path), remedy="export the trace again")
    header = sample[0][0].removeprefix("\ufeff")
    delimiter = max(",;\t|", key=header.count)
    names = next(csv.reader([header], delimiter=delimiter))
    chosen = _choose(names, wanted, file=file)
    columns = [f"c{index}" for index in range(len(names))]
    types = ("VARCHAR",) * len(wanted)
    raw = f"concat_ws('{delimiter}', " + ", ".join(f"coalesce({column}, '')" for column in columns) + ")"
    if not any('"' in row[0] for row in sample):  # short rows are padded; one column more catches the long ones
        dialect = "quote = '', strict_mode = false, null_padding = true"
        relation = _read_csv(file, delimiter, [*columns, "more"], dialect)
        as_text = {columns[index] for position, index in enumerate(chosen) if position not in numbers}
        as_number = {columns[index] for index in chosen} - as_text
        numeric = _read_csv(file, delimiter, [*columns, "more"], dialect, numbers=as_number) if as_number else None
        return Scan(relation, tuple(columns[index] for index in chosen), types, "more IS NOT NULL", raw, numeric)
    if strict:
        relation = _read_csv(file, delimiter, columns, "quote = '\"', escape = '\"', strict_mode = true")
        return Scan(relation, tuple(columns[index] for index in chosen), types, "false", raw, strict=True)
    field = f'(?:^|[{delimiter}])("(?:[^"]|"")*"|[^{delimiter}]*)'
    relation = (
        f"(SELECT line, regexp_extract_all(line, {literal(field)}, 1) AS part FROM {lines(file)} "
        "WHERE trim(line) <> '' OFFSET 1)"
    )
    values = tuple(f"trim(part[{index + 1}], '\"')" for index in chosen)
    return Scan(relation, values, types, f"len(part) > {len(names)}", "line")


def _read_csv(
    file: TraceFile, delimiter: str, columns: list[str], dialect: str, *, numbers: Collection[str] = ()
) -> str:
    """`numbers`: the columns that are read as such; then a row that cannot be read raises, else it is a reject."""
    shape = ", ".join(f"'{column}': '{'DOUBLE' if column in numbers else 'VARCHAR'}'" for column in columns)
    return (
        f"read_csv({_sql_path(file.path)}, auto_detect = false, header = true, delim = '{delimiter}', {dialect}, "
        f"columns = {{{shape}}}, store_rejects = {not numbers}, compression = '{file.compression}')"
    )


def _choose(present: list[str], wanted: tuple[str, ...], *, file: TraceFile) -> list[int]:
    """Where each wanted column is among those present; case and surrounding spaces do not matter."""
    plain = [name.strip().casefold() for name in present]
    missing = [name for name in wanted if name.strip().casefold() not in plain]
    if missing:
        shown = []
        for name in missing:
            near = difflib.get_close_matches(name.strip().casefold(), plain, n=1, cutoff=0.5)
            shown.append(f"`{name}`" + (f" (nearest: `{present[plain.index(near[0])].strip()}`)" if near else ""))
        raise DataError(
            f"lacks the column{'s' if len(missing) > 1 else ''} {', '.join(shown)}; "
            f"it has {', '.join(f'`{name.strip()[:40]}`' for name in present[:20])}",
            where=str(file.path),
            remedy="correct `format` or `columns` of the source, or give the file a header line",
        )
    return [plain.index(name.strip().casefold()) for name in wanted]
