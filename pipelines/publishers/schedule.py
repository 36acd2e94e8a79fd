"""The floor schedule: built from floors per step, written as one JSON document, read back and asked."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import ValidationError

from floorcast.columns import FLOORS, conform
from floorcast.errors import NotFoundError, PublishError
from floorcast.pool import PoolSettings
from floorcast.tuning import Gate
from floorcast.types import (
    SCHEDULE_SCHEMA_VERSION,
    AdmissionWindow,
    FloorSchedule,
    FloorWindow,
    PoolSchedule,
    Proof,
    Reason,
    Rung,
)
from floorcast.units import format_time
from pipelines.publishers.files import replace_file
from pipelines.publishers.schema import schedule_json_schema_text

LATEST = "schedule.json"
KEPT = "schedules"
"""The folder of all versions, beside it."""
SCHEMA = "schedule.schema.json"


def build_schedule(
    *,
    mode: Literal["advisory", "apply"],
    version: int,
    issued_at: datetime,
    valid_until: datetime,
    floors: pl.DataFrame,
    rungs: Mapping[str, Rung],
    settings: Mapping[str, PoolSettings],
    admission: Mapping[str, tuple[AdmissionWindow, ...]] | None = None,
    gates: Mapping[str, Gate] | None = None,
    proofs: Mapping[str, Proof] | None = None,
) -> FloorSchedule:
    """The schedule of one publication, from `floors` (schema FLOORS), the rung of each pool, what it was planned with,
    its gate, untested unless given, and what that rests on; `admission` is what `scaling.fleet_admission` says of the
    floors.

    Neighbouring steps of equal min_replicas, rung and placement of classes become one window, which carries the reason
    of its most demanding step: the largest required_replicas, the earliest of equals. Raises PublishError where a pool
    lacks floors or a rung, a step is missing, doubled or empty, a reason cannot be read, or the validity is not
    positive.
    """
    if valid_until <= issued_at:
        raise PublishError(
            f"valid_until {format_time(valid_until)} is not after issued_at {format_time(issued_at)}",
            where=f"version {version}",
            remedy="set `publication.valid_for` to more than 0",
        )
    steps = conform(floors, FLOORS).sort("pool", "window_start")
    _check_steps(steps, rungs)
    windows: dict[str, list[FloorWindow]] = {pool: [] for pool in sorted(rungs)}
    for row in _merge(steps).iter_rows(named=True):
        windows[row["pool"]].append(
            FloorWindow(start=row["start"], end=row["end"], min_replicas=row["min_replicas"], reason=_reason(row))
        )
    pools = {
        pool: PoolSchedule(
            gate=(gates or {}).get(pool, "untested"),
            proof=(proofs or {}).get(pool),
            rung=rungs[pool],
            settings=settings.get(pool),
            windows=tuple(pool_windows),
        )
        for pool, pool_windows in windows.items()
    }
    return FloorSchedule(
        version=version,
        mode=mode,
        issued_at=issued_at.astimezone(UTC),
        valid_until=valid_until.astimezone(UTC),
        content_hash=_content_hash({name: pool.model_dump(mode="json") for name, pool in pools.items()}),
        pools=pools,
        admission=dict(admission or {}),
    )


def write_schedule(schedule: FloorSchedule, folder: Path) -> Path:
    """Publish into `folder` and return the path of `schedule.json`.

    Writes `schedules/v000042.json`, which is kept, then `schedule.schema.json`, then `schedule.json`, each in one
    step. Doing it again with the same schedule changes nothing, and an older version never replaces a newer
    `schedule.json`. Raises PublishError where that version was published with other content.
    """
    text = schedule.model_dump_json(by_alias=True, indent=2) + "\n"
    kept = folder / KEPT / f"v{schedule.version:06d}.json"
    if not kept.exists():
        replace_file(kept, text)
    elif kept.read_bytes() != text.encode():
        raise PublishError(
            f"version {schedule.version} is already published with other content",
            where=str(kept),
            remedy="publish under the next version, or give this database an `output.dir` of its own",
        )
    replace_file(folder / SCHEMA, schedule_json_schema_text())
    latest = folder / LATEST
    if not _holds_newer(latest, schedule.version):
        replace_file(latest, text)
    return latest


def published_versions(folder: Path) -> list[int]:
    """The versions kept in `folder`, whether or not a database knows of them."""
    numbers = (kept.stem.removeprefix("v") for kept in (folder / KEPT).glob("v[0-9]*.json"))
    # What else lies there, such as someone's copy of a version, is none.
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def read_schedule(path: Path) -> FloorSchedule:
    """Read and verify a published schedule.

    Raises PublishError for a file that is missing, is not JSON, is of a newer schema, violates the schema or does
    not match its own content hash.
    """
    restore = "publish again, or restore the file from `schedules/`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PublishError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="run `floorcast publish`, or check the path"
        ) from None
    except (ValueError, RecursionError) as error:
        raise PublishError(f"not JSON: {error}", where=str(path), remedy=restore) from None
    number = document.get("schema") if isinstance(document, dict) else None
    if isinstance(number, int) and number > SCHEDULE_SCHEMA_VERSION:
        raise PublishError(
            f"schema {number} is newer than {SCHEDULE_SCHEMA_VERSION}, the newest this floorcast reads",
            where=str(path),
            remedy="upgrade floorcast",
        )
    try:
        schedule = FloorSchedule.model_validate(document)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"]) or "(whole document)"
        raise PublishError(f"{field}: {fault['msg']}", where=str(path), remedy=restore) from None
    if _content_hash(document["pools"]) != schedule.content_hash:
        raise PublishError("content_hash does not match `pools`: edited or damaged", where=str(path), remedy=restore)
    return schedule


def floor_due(schedule: FloorSchedule, pool: str, at: datetime) -> FloorWindow:
    """The window of `pool` that holds `at`. Raises NotFoundError for an unknown pool or a time not covered."""
    found = schedule.pools.get(pool)
    if found is None:
        near = difflib.get_close_matches(pool, schedule.pools, n=1)
        raise NotFoundError(
            f"no pool `{pool}`",
            where=f"schedule version {schedule.version}",
            remedy=f"did you mean `{near[0]}`?" if near else f"use one of: {', '.join(sorted(schedule.pools))}",
        )
    for window in found.windows:
        if window.start <= at < window.end:
            return window
    first, last = format_time(found.windows[0].start), format_time(found.windows[-1].end)
    raise NotFoundError(
        f"no floor for {pool} at {format_time(at)}",
        where=f"schedule version {schedule.version}",
        remedy=f"ask for a time from {first} to before {last}, or publish again",
    )


def expired(schedule: FloorSchedule, now: datetime) -> bool:
    """Whether consumers must fall back because the schedule's validity is over."""
    return now >= schedule.valid_until


def _check_steps(steps: pl.DataFrame, rungs: Mapping[str, Rung]) -> None:
    planned = set(steps["pool"].drop_nulls())
    lacking = sorted(planned ^ set(rungs))
    if lacking:
        missing = "rung" if lacking[0] in planned else "floors"
        raise PublishError(f"no {missing}", where=f"pool {lacking[0]}", remedy="plan every pool before publishing")
    broken = steps.filter(
        pl.any_horizontal(pl.all().is_null())
        | (pl.col("window_end") <= pl.col("window_start"))
        | (pl.col("window_start") != pl.col("window_end").shift().over("pool")).fill_null(False)
    )
    if not broken.is_empty():
        row = broken.row(0, named=True)
        raise PublishError(
            "a step is empty, or does not start where the one before it ends",
            where=f"pool {row['pool']}, step {row['window_start']}",
            remedy="plan again: every pool needs one row for every step",
        )


def _merge(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per window: pool, start, end, min_replicas, reason."""
    placed = pl.col("reason").str.json_path_match("$.placed").alias("placed")
    run = pl.struct("min_replicas", "rung", placed).rle_id().over("pool")
    hardest_first = pl.col("reason").sort_by("required_replicas", descending=True, maintain_order=True)
    return (
        steps.group_by("pool", run.alias("run"), maintain_order=True)
        .agg(
            start=pl.col("window_start").first(),
            end=pl.col("window_end").last(),
            min_replicas=pl.col("min_replicas").first(),
            reason=hardest_first.first(),
        )
        .drop("run")
    )


def _reason(row: Mapping[str, Any]) -> Reason:
    try:
        return Reason.model_validate_json(row["reason"])
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise PublishError(
            f"reason: {field}: {fault['msg']}",
            where=f"pool {row['pool']}, window {format_time(row['start'])}",
            remedy="plan again with this version of floorcast",
        ) from None


def _content_hash(pools: object) -> str:
    canonical = json.dumps(pools, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _holds_newer(latest: Path, version: int) -> bool:
    try:
        return read_schedule(latest).version > version
    except PublishError:
        # Missing or damaged: the new one is better either way.
        return False
