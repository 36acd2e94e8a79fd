"""The schedule as CSV and Parquet."""

import re
from pathlib import Path

import polars as pl

from floorcast.types import FloorSchedule
from pipelines.publishers.tables import COLUMNS, schedule_table, write_csv, write_parquet

GOLDEN = """\
version,mode,issued_at,valid_until,pool,gate,rung,window_start,window_end,min_replicas,shortfall_replicas,clamped,\
binding,demand_tokens_per_s,quantile,required_replicas,needed_by,lead_s,reason
42,advisory,2026-11-30T08:50:00Z,2026-11-30T10:50:00Z,code-8b,untested,fresh,2026-11-30T08:55:00Z,\
2026-11-30T09:05:00Z,9,0,,tokens_out,14430.0,0.95,7.4,2026-11-30T09:04:00Z,570.0,\
14430 tokens_out/s at quantile 0.95 needs 7.40 replicas by 2026-11-30T09:04:00Z
42,advisory,2026-11-30T08:50:00Z,2026-11-30T10:50:00Z,code-8b,untested,fresh,2026-11-30T09:05:00Z,\
2026-11-30T09:10:00Z,1,0,,tokens_out,390.0,0.95,0.2,2026-11-30T09:14:00Z,570.0,\
390 tokens_out/s at quantile 0.95 needs 0.20 replicas by 2026-11-30T09:14:00Z
"""


def test_a_csv_is_as_reviewed(tmp_path: Path, fleet: FloorSchedule) -> None:
    assert write_csv(fleet, ["code-8b"], tmp_path).read_text() == GOLDEN


def test_a_parquet_file_has_the_same_rows_with_their_types(tmp_path: Path, fleet: FloorSchedule) -> None:
    table = pl.read_parquet(write_parquet(fleet, list(fleet.pools), tmp_path))
    assert dict(table.schema) == {name: dtype for name, (dtype, _) in COLUMNS.items()}
    assert table.equals(schedule_table(fleet, list(fleet.pools)))
    floors = {(row["pool"], row["window_start"]): row["min_replicas"] for row in table.iter_rows(named=True)}
    assert floors == {
        (name, window.start): window.min_replicas for name, pool in fleet.pools.items() for window in pool.windows
    }


def test_every_column_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "publishing.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE))
    assert {name: meaning for name, (_, meaning) in COLUMNS.items()} == {name: rows.get(name) for name in COLUMNS}
