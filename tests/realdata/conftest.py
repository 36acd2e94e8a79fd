"""Production traces, where they are: FLOORCAST_DATA, or ../shared/data beside the checkout."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.project import Project, load_project

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def traces() -> Path:
    folder = Path(os.environ.get("FLOORCAST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no traces at {folder}")
    return folder


@pytest.fixture
def example(traces: Path, tmp_path: Path) -> Callable[[str], Project]:
    """A project of its own from a configuration under `examples/`."""

    def load(name: str) -> Project:
        file = Path(shutil.copy(ROOT / "examples" / name, tmp_path))
        return load_project(file, environment={"FLOORCAST_DATA": str(traces)})

    return load
