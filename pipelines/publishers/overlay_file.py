"""`overlay.json`: what the service's overlay needs of the database, published beside the schedule."""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from floorcast.errors import PublishError
from floorcast.tuning import TunedSettings
from floorcast.types import Frozen
from pipelines.publishers.files import replace_file

FILE = "overlay.json"


class PastLoad(Frozen):
    """What the pool's past steps took, for `lookahead`."""

    start: AwareDatetime = Field(description="of the first step")
    step_s: float = Field(gt=0)
    load: tuple[float | None, ...] = Field(description="by step, in replicas at full use; null where not observed")


class OverlayFacts(Frozen):
    """By pool, of those that need it."""

    as_of: AwareDatetime
    tuned: dict[str, TunedSettings] = Field(default_factory=dict, description="settings in force, where applied")
    past: dict[str, PastLoad] = Field(default_factory=dict)


def write_overlay_facts(facts: OverlayFacts, folder: Path) -> None:
    """Replace the file in one step. Raises PublishError where the folder cannot be written to."""
    replace_file(folder / FILE, facts.model_dump_json() + "\n")


def read_overlay_facts(folder: Path) -> OverlayFacts | None:
    """None where nothing was published. Raises PublishError where the file is damaged."""
    path = folder / FILE
    try:
        return OverlayFacts.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        what = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise PublishError(
            f"cannot be read: {what}", where=str(path), remedy="run `floorcast publish`; until then the last one holds"
        ) from None
