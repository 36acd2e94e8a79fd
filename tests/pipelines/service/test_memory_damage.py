"""A state file of which bytes are not what was written."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from floorcast.errors import DataError
from pipelines.service.memory import FILE, fresh, read_memory, write_memory

CENTRAL = b"PK\x01\x02"
"""What each entry of a zip's directory begins with; the fields below by their offsets from there."""
VERSION, FLAGS, METHOD = 6, 8, 10


@pytest.mark.parametrize(
    ("field", "value"), [(VERSION, 255), (FLAGS, 1), (FLAGS, 1 << 6), (METHOD, 8), (METHOD, 99), (METHOD, 12)]
)
def test_an_archive_that_claims_to_be_of_another_kind_is_damaged(tmp_path: Path, field: int, value: int) -> None:
    write_memory(fresh(["chat"], wall_s=0), tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    struct.pack_into("<H", content, content.index(CENTRAL) + field, value)
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DataError, match="begins anew"):
        read_memory(tmp_path)


def test_no_byte_that_changed_is_taken_for_another_state(tmp_path: Path) -> None:
    """400 files with one other byte each: damaged, or, where nothing depends on it, read as it was."""
    memory = fresh(["chat", "code"], wall_s=5)
    write_memory(memory, tmp_path)
    good, rng = (tmp_path / FILE).read_bytes(), np.random.default_rng(7)
    for place, change in zip(rng.integers(len(good), size=400), rng.integers(1, 256, size=400), strict=True):
        content = bytearray(good)
        content[place] ^= int(change)
        (tmp_path / FILE).write_bytes(content)
        try:
            found = read_memory(tmp_path)
        except DataError:
            continue
        assert found is not None
        assert (found.pools, found.clock) == (memory.pools, memory.clock)
        np.testing.assert_equal(found.floors, memory.floors)
        np.testing.assert_equal(found.state, memory.state)
