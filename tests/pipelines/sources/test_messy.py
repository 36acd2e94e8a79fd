"""A messy file of requests, against plain Python that reads it line by line."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

START = datetime(2024, 5, 10, tzinfo=UTC)
STAMPS = ("%Y-%m-%d %H:%M:%S.%f0", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00")
BAD = {
    "yesterday,1,2": "unparsable_time",
    "2024-05-10 25:00:00,1,2": "unparsable_time",
    "{t},,2": "missing_tokens",
    "{t},{no_count},2": "missing_tokens",
    "{t},1,-2": "negative_tokens",
    "{t},10000001,2": "absurd_tokens",
    "{t},1,2,3": "malformed_row",
    "2024-05-09 12:00:00,1,2": "time_out_of_order",
    "2031-05-09 12:00:00,1,2": "time_out_of_order",
}


def spelt(moment: datetime, stamp: str) -> str:
    """The moment as text; what says +02 is two hours ahead of UTC."""
    if stamp == "+02":
        return (moment + timedelta(hours=2)).strftime("%Y-%m-%d %H:%M:%S.%f+02")
    return moment.strftime(stamp)


@pytest.mark.parametrize("no_count", ["many", "nan"], ids=["some tokens are words", "all tokens are numbers"])
@pytest.mark.parametrize("usual", [*STAMPS, "+02"])
def test_a_messy_file_agrees_with_plain_python(
    tmp_path: Path, run: Callable[..., Any], usual: str, no_count: str
) -> None:
    """Whatever spelling is the usual one, a row in another means the same time."""
    rng = random.Random(7)
    lines: list[str] = []
    expected: defaultdict[datetime, list[int]] = defaultdict(lambda: [0, 0, 0])
    rejected: dict[int, str] = {}
    for second in range(6000):
        moment = START + timedelta(seconds=second)
        written = spelt(moment, rng.choice([*STAMPS, "+02"]) if rng.random() < 0.1 else usual)
        if 2 < second < 5990 and rng.random() < 0.05:
            bad = rng.choice(list(BAD))
            lines.append(bad.format(t=written, no_count=no_count))
            rejected[len(lines)] = BAD[bad]
        tokens = (rng.randrange(5000), rng.randrange(300))
        row = f"{written},{tokens[0]},{tokens[1]}"
        lines.append(row)
        sums = expected[moment.replace(minute=moment.minute // 5 * 5, second=0)]
        for position, value in enumerate((*tokens, 1)):
            sums[position] += value
        if rng.random() < 0.01:
            lines.append(row)
            rejected[len(lines)] = "duplicate"
    (tmp_path / "a.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines) + "\n")
    result = run(step=timedelta(minutes=5), format="azure", path="a.csv", max_reject_share=0.2, **{"class": "code"})
    assert dict(result.rejects.select("row_number", "reason").rows()) == rejected
    assert result.rejected == Counter(rejected.values())
    assert result.rows_read == len(lines)
    expected.popitem()  # the step that the trace ends in
    found = result.demand.select("step_start", "tokens_in", "tokens_out", "requests").rows()
    assert found == [(at, *map(float, sums)) for at, sums in expected.items()]
