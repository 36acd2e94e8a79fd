"""What the service remembers: in a file that is replaced each tick, so that a restart goes on where it ended."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from floorcast.errors import DataError
from pipelines.publishers.files import replace_file
from pipelines.service.clock import Clock
from pipelines.service.floors import InForce, unknown_floors
from scaling.overlay.lanes import concatenate, take
from scaling.overlay.state import State, begin, from_arrays, to_arrays

FILE = "state.npz"
_FORMAT = 1


@dataclass(frozen=True)
class Memory:
    """By lane, in the order of `pools`."""

    pools: tuple[str, ...]
    clock: Clock
    floors: InForce
    state: State


def fresh(pools: Sequence[str], *, wall_s: float) -> Memory:
    """Nothing is known yet. The overlay's clock begins with the time of day, which is as good as any."""
    clock = Clock(overlay_s=wall_s, wall_s=wall_s, mono_s=None)
    return Memory(tuple(pools), clock, unknown_floors(len(pools)), begin(len(pools), wall_s))


def carried(memory: Memory, pools: Sequence[str]) -> Memory:
    """The memory of these pools: what is known of those that it holds, nothing of the others."""
    if memory.pools == tuple(pools):
        return memory
    added = [name for name in pools if name not in memory.pools]
    place = {name: lane for lane, name in enumerate((*memory.pools, *added))}
    lanes = np.array([place[name] for name in pools], dtype=np.int64)
    floors = concatenate([memory.floors, unknown_floors(len(added))])
    state = concatenate([memory.state, begin(len(added), memory.clock.overlay_s)])
    return Memory(tuple(pools), memory.clock, take(floors, lanes), take(state, lanes))


def joined(newer: Memory, older: Memory) -> Memory:
    """What is known of the pools of either."""
    rest = carried(older, [name for name in older.pools if name not in newer.pools])
    floors, state = concatenate([newer.floors, rest.floors]), concatenate([newer.state, rest.state])
    return Memory((*newer.pools, *rest.pools), newer.clock, floors, state)


def write_memory(memory: Memory, folder: Path) -> None:
    """Replace the file in one step. Raises PublishError where the folder cannot be written to."""
    clock = memory.clock
    arrays: dict[str, npt.NDArray[Any]] = {
        "format": np.array(_FORMAT),
        "pools": np.array(memory.pools, dtype=np.str_),
        "clock": np.array([clock.overlay_s, clock.wall_s, clock.jump_s, clock.jumped_at_s]),
    }
    arrays |= {f"floors.{name}": array for name, array in memory.floors._asdict().items()}
    arrays |= {f"state.{name}": array for name, array in to_arrays(memory.state).items()}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    replace_file(folder / FILE, file.getvalue())


def read_memory(folder: Path) -> Memory | None:
    """What was written last; None where nothing was. Raises DataError where the file is damaged."""
    path = folder / FILE
    try:
        # Not by its path: of a file that is damaged numpy forgets to close it.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if int(arrays["format"]) != _FORMAT:
            raise ValueError(f"format {arrays['format']}, not {_FORMAT}")
        pools = tuple(str(name) for name in arrays["pools"])
        overlay_s, wall_s, jump_s, jumped_at_s = (float(value) for value in arrays["clock"])
        floors = InForce(*(arrays[f"floors.{name}"] for name in InForce._fields))
        if any(array.shape != (len(pools),) for array in floors) or floors.held.dtype != np.bool_:
            raise ValueError("floors of another shape")
        if not np.isfinite([overlay_s, wall_s, jump_s, jumped_at_s]).all():
            raise ValueError("a clock without a time")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        # A damaged archive may also say of itself that it is encrypted, compressed, or of a newer version.
        raise DataError(
            f"cannot be read: {error}", where=str(path), remedy="nothing need be done: the overlay begins anew"
        ) from None
    state = {name.removeprefix("state."): array for name, array in arrays.items() if name.startswith("state.")}
    return Memory(
        pools,
        Clock(overlay_s, wall_s, None, jump_s, jumped_at_s),
        floors,
        from_arrays(state, lanes=len(pools), where=str(path)),
    )
