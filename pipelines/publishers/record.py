"""What each publisher last did, kept beside the schedule as `publishers.json`."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, ValidationError

from floorcast.errors import PublishError
from floorcast.types import Frozen
from pipelines.publishers.files import replace_file
from pipelines.publishers.outcome import Outcome

FILE = "publishers.json"


class Record(Frozen):
    """The newest outcome of each publisher and pool, and the minimums there that are ours."""

    outcomes: tuple[Outcome, ...] = ()
    ours: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="by publisher and pool the minimum that was last applied: what is higher was set by someone else",
    )


def read_record(folder: Path) -> Record:
    """The record in the output folder; an empty one where none is there or it is damaged: then nothing counts as ours,
    and no minimum is lowered for it."""
    try:
        return Record.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return Record()


def record_outcomes(folder: Path, outcomes: Sequence[Outcome], *, publishers: Sequence[str] | None) -> None:
    """Put outcomes in place of the earlier ones of the same publisher and pool, in one step; drop those of publishers
    that are not among `publishers` any more, where it is given. Raises PublishError where the folder cannot be written
    to."""
    with _alone(folder):
        before = read_record(folder)
        newest = {(one.publisher, one.pool): one for one in (*before.outcomes, *outcomes)}
        kept = tuple(one for _, one in sorted(newest.items()) if publishers is None or one.publisher in publishers)
        ours = {label: dict(pools) for label, pools in before.ours.items() if publishers is None or label in publishers}
        for one in outcomes:
            if one.did == "applied" and one.after is not None:
                ours.setdefault(one.publisher, {})[one.pool] = one.after
        record = Record(outcomes=kept, ours=ours)
        replace_file(folder / FILE, record.model_dump_json(indent=2) + "\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The publish stage and the service may both record."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{FILE}.lock").open("ab")
        try:
            # A network file system may have none.
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            lock.close()
            raise
    except OSError as error:
        raise PublishError(
            f"cannot be written: {error.strerror}",
            where=str(folder / FILE),
            remedy="make the folder writable and leave free space on its disk, or change `output.dir`",
        ) from error
    with lock:
        yield


def ours_of(record: Record, publisher: str) -> Mapping[str, int]:
    return record.ours.get(publisher, {})
