"""State that survives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from floorcast.errors import DataError, PublishError
from pipelines.service.clock import Clock
from pipelines.service.floors import InForce
from pipelines.service.memory import FILE, Memory, carried, fresh, read_memory, write_memory


def remembered(*pools: str) -> Memory:
    """Floors and decisions that tell the lanes apart."""
    memory = fresh(pools, wall_s=1000.0)
    lanes = np.arange(len(pools), dtype=np.float64)
    return replace(
        memory,
        clock=Clock(1200.0, 1150.0, 7.0, -50.0, 1100.0),
        floors=InForce(lanes + 10, lanes > 0, lanes + 900),
        state=memory.state._replace(desired=lanes + 20),
    )


def test_what_was_written_is_read_but_for_the_monotonic_clock(tmp_path: Path) -> None:
    memory = remembered("chat", "code")
    write_memory(memory, tmp_path)
    found = read_memory(tmp_path)
    assert found is not None
    assert (found.pools, found.clock) == (memory.pools, replace(memory.clock, mono_s=None))
    for before, after in zip((*memory.floors, *memory.state), (*found.floors, *found.state), strict=True):
        np.testing.assert_array_equal(before, after)


def test_nothing_was_written(tmp_path: Path) -> None:
    assert read_memory(tmp_path) is None


def test_pools_keep_theirs_by_name(tmp_path: Path) -> None:
    """`code` is gone, `docs` is new, and the order is another."""
    found = carried(remembered("chat", "code", "batch"), ("batch", "docs", "chat"))
    assert found.pools == ("batch", "docs", "chat")
    np.testing.assert_array_equal(found.floors.floor, [12, np.nan, 10])
    np.testing.assert_array_equal(found.state.desired, [22, np.nan, 20])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_half_a_file_is_refused_by_name(tmp_path: Path, share: float) -> None:
    write_memory(remembered("chat", "code"), tmp_path)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=r"state\.npz: cannot be read"):
        read_memory(tmp_path)


def test_noise_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(np.random.default_rng(3).bytes(5000))
    with pytest.raises(DataError):
        read_memory(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PublishError, match="cannot be written"):
        write_memory(remembered("chat"), tmp_path / "file")
