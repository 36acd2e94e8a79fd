"""Lanes: the last axis of every array of signals, settings, state and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

_T = TypeVar("_T", bound=NamedTuple)


def take(arrays: _T, lanes: npt.ArrayLike) -> _T:
    """The lanes at these positions, or where this mask holds, in this order."""
    return arrays._make(array[..., np.asarray(lanes)] for array in _of(arrays))


def repeat(arrays: _T, times: int) -> _T:
    """Every lane so many times in a row."""
    return arrays._make(np.repeat(array, times, axis=-1) for array in _of(arrays))


def concatenate(parts: Sequence[_T]) -> _T:
    """The lanes of all parts, one part after the other."""
    return parts[0]._make(np.concatenate(arrays, axis=-1) for arrays in zip(*map(_of, parts), strict=True))


def _of(arrays: NamedTuple) -> tuple[npt.NDArray[Any], ...]:
    return tuple(arrays)
