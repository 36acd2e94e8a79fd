"""Input that cannot be used: each fault is named with its place and a remedy, and nothing stored or published moves."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import dataclass

import duckdb
import pytest

NOW = ("--now", "2026-11-16T09:00")
HEADER = "time,class,tokens_in,tokens_out,requests\n"
ROW = "2026-11-16T08:{:02}:00Z,chat,{},200,3\n"


@dataclass(frozen=True)
class Case:
    """`change` damages a project folder, or replaces text of its configuration; `says` is what the error must name."""

    name: str
    change: object
    code: int
    says: tuple[str, ...]
    words: tuple[str, ...] = ("plan",)


def swap(old, new):
    def change(folder):
        file = folder / "floorcast.yaml"
        text = file.read_text()
        assert text.count(old) == 1, old
        file.write_text(text.replace(old, new))

    return change


CHAT = "pools:\n  chat-70b:"


def calendar(*entries):
    return swap(CHAT, CHAT + "\n    calendar:" + "".join(f"\n      - {entry}" for entry in entries))


def config(content):
    return lambda folder: (folder / "floorcast.yaml").write_bytes(content)


def source(name, content):
    """Another trace file, given as bytes, text or rows of tokens in."""

    def change(folder):
        swap("path: trace.parquet", f"path: {name}")(folder)
        rows = "".join(ROW.format(5 * (row % 12), each) for row, each in enumerate(content))
        data = content if isinstance(content, bytes) else (HEADER + rows).encode()
        (folder / name).write_bytes(data)

    return change


def only_source(text):
    def change(folder):
        file = folder / "floorcast.yaml"
        before, rest = file.read_text().split("sources:\n")
        file.write_text(f"{before}sources:\n  - {text}\npools:{rest.partition('pools:')[2]}")

    return change


def prefill_beside_unified(folder):
    swap("  code-8b:", "  code-8b:\n    role: prefill")(folder)
    swap("pools: [code-8b]", "pools: [code-8b, chat-70b]")(folder)


def config_as_folder(folder):
    (folder / "floorcast.yaml").unlink()
    (folder / "floorcast.yaml").mkdir()


def truncated_parquet(folder):
    file = folder / "trace.parquet"
    file.write_bytes(file.read_bytes()[:5000])


def newer_database(folder):
    with duckdb.connect(str(folder / "floorcast.duckdb")) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (999, 'from_the_future', 'x', now())")


def foreign_database(folder):
    (folder / "floorcast.duckdb").unlink()
    with duckdb.connect(str(folder / "floorcast.duckdb")) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")


def corrupt_database(folder):
    file = folder / "floorcast.duckdb"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def database_as_folder(folder):
    (folder / "floorcast.duckdb").unlink()
    (folder / "floorcast.duckdb").mkdir()


INGEST = ("ingest",)
MOONCAKE = "{name: history, kind: trace, format: mooncake, path: trace.jsonl, class: chat}"
CASES = [
    Case(
        "missing_config",
        lambda _: None,
        2,
        ("no such file", "gone.yaml", "floorcast init"),
        ("plan", "-c", "gone.yaml"),
    ),
    Case("config_is_a_folder", config_as_folder, 2, ("floorcast.yaml: cannot be read: Is a directory\n",)),
    Case("empty_config", config(b""), 2, ("empty", "floorcast init")),
    Case("config_not_yaml", config(b"pools: {a: [1, 2"), 2, ("not YAML", "floorcast.yaml:1", "indentation")),
    Case("config_a_list", config(b"- step: 1h\n"), 2, ("not a mapping of keys",)),
    Case("config_not_utf8", config(b"\xff\xfe\x00mode"), 2, ("not UTF-8 at byte 0",)),
    Case("unknown_key", swap("horizon: 12h", "horizont: 12h"), 2, (":3: horizont", "did you mean `horizon`?")),
    Case("duplicate_key", swap("horizon: 12h", "horizon: 12h\nhorizon: 24h"), 2, ("`horizon` appears twice", ":4")),
    Case("no_unit", swap("step: 1h", "step: 60"), 2, ("step", "60", "a number and a unit")),
    Case("unknown_unit", swap("{p90: 4m}", "{p90: 4 parsecs}"), 2, ("chat-70b.startup.p90", "4 parsecs", "90s, 5m")),
    Case("step_not_of_a_day", swap("step: 1h", "step: 7m"), 2, ("step 7m is not", "divides a day", "use 1m, 5m")),
    Case(
        "horizon_within_lead", swap("horizon: 12h", "horizon: 1h"), 2, ("which the horizon does not reach", "lengthen")
    ),
    Case(
        "min_above_max",
        swap("bounds: {min: 1, max: 60}\n    fallback_replicas: 30", "bounds: {min: 9, max: 6}"),
        2,
        ("min 9 is above max 6", "chat-70b.bounds", "raise max or lower min"),
    ),
    Case(
        "fallback_outside_bounds",
        swap("fallback_replicas: 30", "fallback_replicas: 99"),
        2,
        ("99 is outside bounds 1 to 60",),
    ),
    Case(
        "negative_capacity",
        swap("prefill_tokens_per_s: 1600", "prefill_tokens_per_s: -5"),
        2,
        ("prefill_tokens_per_s", "-5", "use a larger number"),
    ),
    Case(
        "zero_without_saying_when",
        swap("bounds: {min: 1, max: 60}\n    fallback_replicas: 30", "bounds: {min: 0, max: 60}"),
        2,
        ("chat-70b.bounds.min: min 0 lets the pool scale to zero", "use min: 1, or say when with `scale_to_zero:"),
    ),
    Case(
        "never_zero",
        swap("    fallback_replicas: 30", "    scale_to_zero: {wake_up: 3m, below_tokens_per_s: 50}"),
        2,
        ("chat-70b.scale_to_zero: bounds.min keeps replicas", "set bounds.min to 0, or delete `scale_to_zero`"),
    ),
    Case(
        "bounds_not_whole_nodes",
        swap("    fallback_replicas: 30", "    shape: {multiple_of: 4}"),
        2,
        ("chat-70b.bounds.min: min 1 is not a multiple of 4", "remedy: use 4"),
    ),
    Case(
        "step_down_of_half_a_replica",
        swap("    fallback_replicas: 30", "    shape: {step_down: 1.5}"),
        2,
        ("shape.step_down", "1.5 is neither whole replicas nor a share under 100 %", "3 or 10%"),
    ),
    Case(
        "takes_over_from_itself",
        swap("    fallback_replicas: 30", "    margin: {takes_over: {chat-70b: 50%}}"),
        2,
        ("chat-70b.margin.takes_over: pool chat-70b takes over from chat-70b, itself", "another region"),
    ),
    Case(
        "takes_over_from_nobody",
        swap("    fallback_replicas: 30", "    margin: {takes_over: {code-9b: 50%}}"),
        2,
        ("takes over from code-9b, which is not under `pools`", "did you mean code-8b?"),
    ),
    Case("unknown_pool", swap("pools: [code-8b]", "pools: [code-9b]"), 2, ("code-9b", "did you mean code-8b?")),
    Case("pool_without_class", swap("pools: [code-8b]", "pools: [chat-70b]"), 2, ("pool code-8b serves no class",)),
    Case(
        "unset_variable",
        swap("trace.parquet", "${TRACES_NOWHERE}/a.csv"),
        2,
        ("TRACES_NOWHERE is not set", "sources.0.path", "export"),
    ),
    Case(
        "unknown_zone",
        swap("mode: advisory", "zone: Europe/Berlim"),
        2,
        ("Europe/Berlim", "did you mean Europe/Berlin?"),
    ),
    Case(
        "event_ends_first",
        swap(CHAT, "events:\n  - {name: a, start: 2026-12-02, end: 2026-12-01, multiply: 2}\n" + CHAT),
        2,
        ("event a ends at 2026-12-01", "events.0.end", "correct `end`"),
    ),
    Case(
        "calendar_without_length",
        calendar('{name: a, start: "08:00", end: "08:00", minimum: 3}'),
        2,
        ("ends at 08:00, when it starts", "chat-70b.calendar.0.end", 'end: "24:00"'),
    ),
    Case(
        "calendar_unknown_zone",
        calendar('{name: a, start: "08:00", end: "09:00", minimum: 3, zone: Amerika/New_York}'),
        2,
        ("chat-70b.calendar.0.zone", "did you mean America/New_York?"),
    ),
    Case(
        "minimum_above_max",
        calendar('{name: a, start: "08:00", end: "09:00", minimum: 61}'),
        2,
        ("has minimum 61 above bounds.max 60 of pool chat-70b", "raise bounds.max or lower the minimum"),
    ),
    Case(
        "maintenance_overlaps",
        calendar(
            '{name: a, kind: maintenance, start: "08:00", end: "10:00", ceiling: 1}',
            '{name: b, kind: maintenance, start: "09:00", end: "11:00", ceiling: 2}',
        ),
        2,
        ("b is maintenance of pool chat-70b at the same time as a", "with the lower ceiling, or move one"),
    ),
    Case(
        "prefill_alone",
        swap(CHAT, CHAT + "\n    role: prefill"),
        2,
        ("names prefill pool chat-70b and no decode pool", "classes.chat.pools", "name a pool of `role: decode`"),
    ),
    Case(
        "prefill_beside_unified",
        prefill_beside_unified,
        2,
        ("classes.code.pools", "names prefill pool code-8b and unified pool chat-70b", "drop it, or the others"),
    ),
    Case(
        "several_pools_without_price",
        swap("pools: [code-8b]", "pools: [code-8b, chat-70b]"),
        2,
        ("classes.code.pools", "the price of code-8b is not known", "give their `gpu.usd_per_gpu_hour`"),
    ),
    Case("relative_times_without_start", only_source(MOONCAKE), 2, ("sources.0", "needs `start`", "start: 2026")),
    Case(
        "class_not_configured",
        swap("requests: requests}", "requests: requests}\n    classes: {chat: chatt}"),
        2,
        ("class chatt is not configured", "did you mean chat?"),
        INGEST,
    ),
    Case(
        "step_no_multiple_of_rows",
        swap("row_interval: 5m", "row_interval: 7m"),
        2,
        ("sources.history.row_interval", "7m"),
        INGEST,
    ),
    Case(
        "missing_trace",
        swap("trace.parquet", "trase.parquet"),
        3,
        ("no such file", "trase.parquet", "did you mean", "trace.parquet?"),
        INGEST,
    ),
    Case("folder_as_trace", swap("trace.parquet", "published"), 3, ("is a folder", "*.csv"), INGEST),
    Case(
        "missing_columns",
        source("t.csv", b"when,tokens_in,tokens_out\n1,2,3\n"),
        3,
        ("lacks the columns", "`time`", "`class`", "it has `when`"),
        INGEST,
    ),
    Case("binary_garbage", source("t.csv", bytes(range(256)) * 20), 3, ("t.csv",), INGEST),
    Case(
        "truncated_gzip",
        source("t.csv.gz", gzip.compress((HEADER + ROW.format(0, 1) * 5000).encode())[:120]),
        3,
        ("t.csv.gz",),
        INGEST,
    ),
    Case("truncated_parquet", truncated_parquet, 3, ("trace.parquet",), INGEST),
    Case("csv_named_parquet", source("t.parquet", (HEADER + ROW.format(0, 1)).encode()), 3, ("t.parquet",), INGEST),
    Case("empty_trace", source("t.csv", b""), 3, ("t.csv", "export the trace again"), INGEST),
    Case("header_only", source("t.csv", HEADER.encode()), 3, ("has a header but no rows",), INGEST),
    Case(
        "negative_tokens",
        source("t.csv", [-7] * 40),
        3,
        ("40 of 40 rows (100.0%)", "negative_tokens: 40, e.g. t.csv row 1", "max_reject_share"),
        INGEST,
    ),
    Case("nan_tokens", source("t.csv", ["NaN"] * 40), 3, ("missing_tokens: 40", "hold numbers"), INGEST),
    Case(
        "a_few_bad_rows_too_many",
        source("t.csv", [10] * 6 + ["many"] * 6),
        3,
        ("6 of 12 rows (50.0%)", "missing_tokens: 6, e.g. t.csv row 7"),
        INGEST,
    ),
    Case(
        "unparsable_times",
        source("t.csv", (HEADER + "lunchtime,chat,1,2,3\n" * 9).encode()),
        3,
        ("unparsable_time: 9", "2026-11-30T08:55:00Z"),
        INGEST,
    ),
    Case("newer_database", newer_database, 4, ("migration 999", "upgrade floorcast", "left untouched")),
    Case("foreign_database", foreign_database, 4, ("floorcast did not make (invoices)", "floorcast's own")),
    Case("corrupt_database", corrupt_database, 4, ("floorcast.duckdb", "backup")),
    Case(
        "text_as_database",
        lambda folder: (folder / "floorcast.duckdb").write_text("hello" * 99),
        4,
        ("not a DuckDB database",),
    ),
    Case("folder_as_database", database_as_folder, 4, ("not a file", "store.path")),
    Case(
        "output_is_a_file",
        swap("mode: advisory", "output: {dir: trace.parquet}"),
        6,
        ("trace.parquet", "output.dir"),
        ("publish",),
    ),
]


def bytes_of(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_named_and_nothing_moves(case, main, published, dump):
    case.change(published.base)
    before = bytes_of(published.base)
    rows = None if case.code == 4 else stored(published, dump)
    words, name = case.words, str(published.store_path)
    ran = main(*words, *NOW, cwd=published.base)
    assert ran.code == case.code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "\n  remedy: " in ran.err
    assert "Traceback" not in ran.err
    for text in case.says:
        assert text in ran.err
    after = bytes_of(published.base)
    if rows is None:
        assert after == before
    else:
        # A stage that failed is on record; all else that is stored stays.
        assert stored(published, dump) == rows
        assert {path: data for path, data in after.items() if path != name} == {
            path: data for path, data in before.items() if path != name
        }


def stored(project, dump):
    return {table: rows for table, rows in dump(project).items() if table != "runs"}


def test_a_parquet_file_that_is_named_csv_says_so(main, published):
    csv = published.base / "trace.csv"
    (published.base / "trace.parquet").rename(csv)
    swap("trace.parquet", "trace.csv")(published.base)
    ran = main("ingest", *NOW, cwd=published.base)
    assert ran.code == 3
    assert "trace.csv" in ran.err
    assert "parquet" in ran.err
    assert "remedy:" in ran.err


def test_a_database_in_use_names_who_holds_it(main, published):
    """Another process has it open for longer than is waited for; nothing is published over it."""
    script = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(published.store_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    before = bytes_of(published.output)
    swap("horizon: 12h", "horizon: 12h\nstore: {wait: 2s}")(published.base)
    try:
        assert holder.stdout.readline() == b"open\n"
        ran = main("publish", *NOW, cwd=published.base)
    finally:
        holder.communicate()
    assert ran.code == 4
    assert f"in use by process {holder.pid} (" in ran.err
    assert "remedy: wait for it to finish or stop it" in ran.err
    assert "Traceback" not in ran.err
    assert bytes_of(published.output) == before


def test_every_fault_of_a_configuration_is_named_at_once(main, published):
    for old, new in (
        ("horizon: 12h", "horizont: 12h"),
        ("{p90: 4m}", "{p90: soon}"),
        ("pools: [code-8b]", "pools: []"),
    ):
        swap(old, new)(published.base)
    ran = main("check", *NOW, cwd=published.base)
    assert ran.code == 2
    assert ran.err.count("remedy:") == 3
