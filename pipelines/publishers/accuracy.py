"""How right the published forecasts were, as a file for those who do not read the database."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import polars as pl
from pydantic import AwareDatetime, Field

from floorcast.types import Frozen
from pipelines.publishers.files import replace_file

ACCURACY_FILE = "accuracy.json"


class SeriesAccuracy(Frozen):
    """Of one class, metric and horizon."""

    workload_class: str
    metric: str
    horizon: str
    steps: int = Field(ge=0)
    wape: float | None = Field(default=None, ge=0)
    calibration: float | None = Field(default=None, ge=0, le=1)


class Accuracy(Frozen):
    """What was judged last."""

    as_of: AwareDatetime
    series: tuple[SeriesAccuracy, ...]


def write_accuracy_file(folder: Path, as_of: datetime, published: pl.DataFrame) -> None:
    """Write rows of ACCURACY, those of the published forecasts, to `accuracy.json` in `folder`, in one step."""
    rows = published.select(list(SeriesAccuracy.model_fields)).to_dicts()
    document = Accuracy(as_of=as_of, series=tuple(SeriesAccuracy(**row) for row in rows))
    replace_file(folder / ACCURACY_FILE, document.model_dump_json(indent=2) + "\n")
