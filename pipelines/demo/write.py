"""Writes the demo history and its configuration into a folder."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from pathlib import Path

import numpy as np

from floorcast.errors import ConfigError, DataError
from pipelines.demo.generate import generate_minutes


def write_demo(folder: Path, *, end: datetime, seed: int = 7) -> Path:
    """Write history.parquet and floorcast.yaml, making the folder if need be; the path of the latter is returned.

    Files of an earlier demo are replaced; the same `end` and `seed` leave the same bytes. Raises ConfigError
    where the folder holds anything and is not an earlier demo's, DataError where it cannot be written to and as
    `generate_minutes` does.
    """
    template = files("pipelines.demo").joinpath("floorcast.yaml").read_text(encoding="utf-8")
    title = template.partition("\n")[0]
    config = folder / "floorcast.yaml"
    ours = config.is_file() and config.read_text(encoding="utf-8", errors="replace").startswith(title)
    if not ours and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            "the folder is not empty and not an earlier demo's; the demo would replace what is in it",
            where=str(folder),
            remedy="give the demo an empty or a new folder with --dir",
        )
    history = generate_minutes(end=end, rng=np.random.default_rng(seed))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        history.write_parquet(folder / "history.parquet", compression="zstd")
        config.write_text(template, encoding="utf-8")
    except OSError as error:
        raise DataError(
            f"the demo cannot be written: {error}", where=str(folder), remedy="name a folder that can be written to"
        ) from error
    return config
