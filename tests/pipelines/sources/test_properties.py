"""The SQL against a loop anyone can read, and the conservation of rows, on traces that Hypothesis makes up."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.source import TraceSource
from floorcast.units import floor_to_step
from pipelines.sources import TraceImport, import_trace

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"time": "t", "tokens_in": "i", "tokens_out": "o", "class": "k"}
requests = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 5000), st.integers(0, 500), st.sampled_from(["a", "b"])), min_size=1
)
fields = st.sampled_from(
    ["", "x", "-1", "nan", "7", "1e99", "2026-01-01T00:00:09Z", 'q"q', "a", "b", "\t", "\u00e9", ","]
)
garbage = st.lists(st.lists(fields, min_size=1, max_size=6).map(",".join).filter(lambda row: row.strip() != ""))


def read(text: str, *, step: timedelta, until: datetime | None = None, **keys: object) -> TraceImport:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "g.csv").write_text(text, encoding="utf-8")
        keys = {"format": "generic", "columns": COLUMNS, "max_reject_share": 1} | keys
        source = TraceSource.model_validate({"name": "g", "kind": "trace", "path": "g.csv"} | keys)
        return import_trace(source, step=step, classes=("a", "b"), until=until, base=Path(folder))


def row(second: int, tokens_in: int, tokens_out: int, kind: str) -> str:
    return f"{(START + timedelta(seconds=second)).isoformat()},{tokens_in},{tokens_out},{kind}"


def naive(
    trace: list[tuple[int, int, int, str]], *, step: timedelta, until: datetime | None
) -> dict[tuple[str, datetime], tuple[float, ...]]:
    """Each class and step's tokens in, tokens out, requests, both peaks and observed fraction, one row at a time."""
    seen = [(START + timedelta(seconds=s), i, o, k) for s, i, o, k in trace]
    used = [request for request in seen if until is None or request[0] < until]
    if not used:
        return {}
    first = min(request[0] for request in used)
    end = until if until is not None and len(used) < len(seen) else max(request[0] for request in used)
    result = {}
    for kind in sorted({request[3] for request in used}):
        at = floor_to_step(first, step)
        while at + step <= end:
            inside = [request for request in used if at <= request[0] < at + step and request[3] == kind]
            minutes: dict[datetime, list[int]] = defaultdict(lambda: [0, 0])
            for moment, tokens_in, tokens_out, _ in inside:
                minute = minutes[moment.replace(second=0)]
                minute[0] += tokens_in
                minute[1] += tokens_out
            result[kind, at] = (
                sum(request[1] for request in inside),
                sum(request[2] for request in inside),
                len(inside),
                max((minute[0] for minute in minutes.values()), default=0) / 60,
                max((minute[1] for minute in minutes.values()), default=0) / 60,
                (at + step - max(at, first)) / step,
            )
            at += step
    return result


@settings(max_examples=40, deadline=None)
@given(trace=requests, step=st.sampled_from([1, 5, 15]), cut=st.none() | st.integers(0, 3100))
def test_requests_agree_with_a_loop(trace: list[tuple[int, int, int, str]], step: int, cut: int | None) -> None:
    until = None if cut is None else START + timedelta(seconds=cut)
    text = "t,i,o,k\n" + "\n".join(row(*request) for request in trace)
    result = read(text, step=timedelta(minutes=step), until=until)
    found = {(r[0], r[1]): r[2:8] for r in result.demand.rows()}
    expected = naive(trace, step=timedelta(minutes=step), until=until)
    assert list(found) == list(expected)
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key


@settings(max_examples=40, deadline=None)
@given(good=requests, bad=garbage, unclosed=st.sampled_from([[], ['"x,1,2,a'], ['x,1,2,"a']]))
def test_every_row_is_used_or_rejected_whatever_it_holds(
    good: list[tuple[int, int, int, str]], bad: list[str], unclosed: list[str]
) -> None:
    """One quote that does not close; two at the right places are a field over several lines, and one row."""
    lines = [row(*request) for request in good]
    for position, line in enumerate(bad + unclosed):
        lines.insert(position * 7 % (len(lines) + 1), line)
    result = read("t,i,o,k\n" + "\n".join(lines) + "\n", step=timedelta(minutes=1))
    assert result.rows_read == len(lines)
    assert result.rows_read == result.rows_used + sum(result.rejected.values()) + result.rows_past_until
    assert result.rows_used >= len(good)
    assert result.rejects.height == sum(result.rejected.values())
    assert set(result.examples) == set(result.rejected)


@settings(max_examples=30, deadline=None)
@given(
    minutes=st.dictionaries(st.tuples(st.integers(0, 40), st.sampled_from("ab")), st.integers(0, 9999), min_size=1),
    step=st.sampled_from([1, 5, 10]),
)
def test_sums_agree_with_a_loop(minutes: dict[tuple[int, str], int], step: int) -> None:
    text = "t,i,o,k\n" + "\n".join(row(60 * minute, value, value, kind) for (minute, kind), value in minutes.items())
    result = read(text, step=timedelta(minutes=step), row_interval="1m")
    complete = (max(minute for minute, _ in minutes) + 1) // step
    expected = {}
    for kind in "ab":
        for number in range(complete):
            inside = [v for (m, k), v in minutes.items() if k == kind and m // step == number]
            if inside:
                at = START + timedelta(minutes=number * step)
                expected[kind, at] = (sum(inside), max(inside) / 60, len(inside) / step)
    found = {
        (kind, at): (total, peak, fraction)
        for kind, at, total, peak, fraction in result.demand.select(
            "workload_class", "step_start", "tokens_in", "peak_tokens_in_per_s", "observed_fraction"
        ).rows()
    }
    assert list(found) == list(expected)
    assert all(math.isclose(a, b) for key in found for a, b in zip(found[key], expected[key], strict=True))
