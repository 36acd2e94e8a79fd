"""What `check` finds is what `ingest` would store, or refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.units import floor_to_step

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FLEET = """\
pools:
  pool:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 5000, decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [pool]}
"""
READ = "    columns: {time: t, tokens_in: i, tokens_out: o}\n    class: chat\n"
QUERY = "SELECT * FROM read_parquet('rows.parquet') WHERE t >= $start AND t < $end"
SQL = f"sources:\n  - name: gateway\n    kind: sql\n    query: {QUERY}\n{READ}{FLEET}"
TRACE = f"sources:\n  - name: gateway\n    kind: trace\n    format: generic\n    path: rows.parquet\n{READ}{FLEET}"


@pytest.fixture
def gateway(tmp_path):
    """`gateway(text, rows)` writes a configuration and its rows of t, i, o."""

    def write(text, rows):
        (tmp_path / "floorcast.yaml").write_text(text)
        pl.DataFrame(
            rows, schema={"t": pl.Datetime("us", "UTC"), "i": pl.Int64, "o": pl.Int64}, orient="row"
        ).write_parquet(tmp_path / "rows.parquet")
        return tmp_path

    return write


@pytest.mark.parametrize("text", [SQL, TRACE], ids=["sql", "trace"])
def test_rows_that_ingest_refuses_are_refused_with_the_same_words(gateway, main, text):
    t0 = datetime(2026, 11, 3, tzinfo=UTC)
    folder = gateway(text, [(t0 + n * MINUTE, None if n % 3 == 0 else 5, 1) for n in range(600)])
    for command in ("check", "ingest"):
        ran = main(command, "--now", "2026-11-03T10:00:00Z", cwd=folder)
        assert ran.code == 3
        assert "200 of 600 rows (33.3%) cannot be used, more than max_reject_share" in ran.err
        assert "missing_tokens: 200, e.g. " in ran.err


@pytest.mark.parametrize(("ahead", "told"), [(3 * HOUR, "the newest 20"), (90 * 24 * HOUR, "by more than a month")])
def test_a_trace_with_a_row_of_the_future_ends_where_ingest_ends_it(gateway, main, ahead, told):
    """With its last row before the present, an hour ago."""
    last = datetime.now(UTC) - HOUR
    folder = gateway(TRACE, [*((last - n * MINUTE, 5, 1) for n in range(301)), (last + HOUR + ahead, 5, 1)])
    found = json.loads(main("check", "--json", cwd=folder).out)["sources"][0]
    stored = json.loads(main("ingest", "--json", cwd=folder).out)["sources"][0]
    assert (found["ahead"], found["classes"][0]["steps"]) == (stored["ahead"], stored["steps"]) == (1, 60)
    assert found["classes"][0]["last"] == f"{floor_to_step(last, 5 * MINUTE) - 5 * MINUTE:%FT%TZ}"
    assert f"  1 row stamped after now, {told}" in main("check", cwd=folder).out


SUMS = TRACE.replace("    class: chat\n", "    class: chat\n    row_interval: 1m\n")


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        # Five minutes apart, with an hour missing and one row out of place.
        ([*range(0, 300, 5), *range(360, 600, 5), 303], ["rows are 5m apart, row_interval is 1m"]),
        # A minute apart, and most of them without a row.
        ([n + m for n in range(0, 600, 20) for m in (0, 1)], []),
    ],
)
def test_a_row_interval_shorter_than_rows_are_apart_is_told(gateway, main, minutes, told):
    t0 = datetime(2026, 11, 3, tzinfo=UTC)
    folder = gateway(SUMS, [(t0 + n * MINUTE, 5, 1) for n in minutes])
    ran = main("check", "--now", "2026-11-03T10:00:00Z", cwd=folder)
    assert ran.code == 0
    remarks = [line.strip() for line in ran.out.splitlines() if ", row_interval is " in line]
    assert [line.partition(":")[0] for line in remarks] == told
    assert all(line.endswith("write row_interval: 5m if a row is the sum over that") for line in remarks)


def test_it_tells_how_much_there_is_and_what_that_takes(gateway, main):
    """Sums of a minute, ten minutes of them. Tokens in: 600,000 a minute, 10,000/s, in the second five minutes three
    times that; mean 20,000/s. Tokens out are half as many.

    Busiest 30,000 in and 15,000 out take (30,000 / 5,000 + 15,000 / 2,500) / 0.75 = 12 / 0.75 = 16 replicas.
    """
    t0 = datetime(2026, 11, 3, tzinfo=UTC)
    rows = [(t0 + n * MINUTE, 600_000 * times, 300_000 * times) for n in range(10) for times in [1 if n < 5 else 3]]
    sums = SUMS.replace(
        "decode_tokens_per_s: 2500", "decode_tokens_per_s: 2500, target_utilization: 0.75, combine: sum"
    )
    folder = gateway(sums, rows)
    ran = main("check", "--now", "2026-11-03T10:00:00Z", cwd=folder)
    assert ran.code == 0
    assert "  chat: mean 20,000 in and 10,000 out, busiest 30,000 in and 15,000 out tokens/s\n" in ran.out
    assert "    about 16 replicas at the busiest step, 2026-11-03 00:05 UTC (bounds 1 to 40)\n" in ran.out
    assert "more than bounds.max" not in ran.out
    found = json.loads(main("check", "--json", "--now", "2026-11-03T10:00:00Z", cwd=folder).out)
    assert found["busiest"] == {"pool": {"replicas": 16, "step": "2026-11-03T00:05:00Z"}}
    told = found["sources"][0]["classes"][0]["tokens_per_s"]
    assert told["mean"] == pytest.approx({"tokens_in": 20_000, "tokens_out": 10_000})
    assert told["busiest"] == pytest.approx({"tokens_in": 30_000, "tokens_out": 15_000})
    gateway(sums.replace("max: 40", "max: 15"), rows)
    ran = main("check", "--now", "2026-11-03T10:00:00Z", cwd=folder)
    assert "that is more than bounds.max: check the units" in ran.out


def test_a_database_is_told_by_its_last_day(gateway, main):
    """Five rows of 300 tokens in a step of 300 s are 5 tokens/s; the other of the two steps has no row."""
    t0 = datetime(2026, 11, 3, 9, 50, tzinfo=UTC)
    folder = gateway(SQL, [(t0 + n * MINUTE, 300, 60) for n in range(5)])
    ran = main("check", "--now", "2026-11-03T10:00:00Z", cwd=folder)
    assert ran.code == 0
    assert "busiest 5 in and 1 out tokens/s" in ran.out
    assert "about 1 replica at the busiest step, 2026-11-03 09:50 UTC" in ran.out
