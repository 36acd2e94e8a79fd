"""What is asked for beyond the required replicas: values in order, each of which applies and explains itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from floorcast.pool import Margin
from floorcast.types import BufferName
from scaling.capacity import Floats

_ROUNDING = 1e-9
_MOST_REPLICAS = 1e15


@dataclass(frozen=True)
class Buffer(ABC):
    """One step from required replicas to a floor. `value` is in the unit that its subclass says."""

    name: ClassVar[BufferName]
    value: float

    @abstractmethod
    def apply(self, replicas: Floats) -> Floats:
        """Replicas after it, from those before it, of any shape. More before is never less after."""

    @abstractmethod
    def text(self, before: float, after: float) -> str:
        """The step in words, as `warm 1: 14`."""


@dataclass(frozen=True)
class MinimumMargin(Buffer):
    """A share more."""

    name = "minimum_margin"

    def apply(self, replicas: Floats) -> Floats:
        return replicas * (1 + self.value)

    def text(self, before: float, after: float) -> str:
        return f"minimum {self.value * 100:g} %: {after:.2f}"


@dataclass(frozen=True)
class RoundUp(Buffer):
    """Up to whole replicas."""

    name = "round_up"
    value: float = 1

    def apply(self, replicas: Floats) -> Floats:
        return whole_replicas(replicas)

    def text(self, before: float, after: float) -> str:
        return f"-> {after:g} replica{'' if after == 1 else 's'}"


@dataclass(frozen=True)
class ZoneLoss(Buffer):
    """Spread evenly over `value` zones Z, the replicas outside any one of them still carry the need n.

    Of N replicas the largest zone has ceil(N / Z), so N - ceil(N / Z) = floor(N (Z - 1) / Z) are left, which is n or
    more from N = ceil(n Z / (Z - 1)) on.
    """

    name = "zone_loss"

    def apply(self, replicas: Floats) -> Floats:
        return whole_replicas(replicas * self.value / (self.value - 1))

    def text(self, before: float, after: float) -> str:
        return f"zone loss, 1 of {self.value:g}: {before:g} x {self.value:g} / {self.value - 1:g} -> {after:g}"


@dataclass(frozen=True)
class Rollout(Buffer):
    """While a rolling update takes `value` replicas away, below 1 that share, the others still carry the need."""

    name = "rollout"

    def apply(self, replicas: Floats) -> Floats:
        return replicas + self.value if self.value >= 1 else whole_replicas(replicas / (1 - self.value))

    def text(self, before: float, after: float) -> str:
        if self.value >= 1:
            return f"rollout {self.value:g}: {after:g}"
        return f"rollout {self.value * 100:g} %: {before:g} / {1 - self.value:g} -> {after:g}"


@dataclass(frozen=True)
class Warm(Buffer):
    """That many replicas more."""

    name = "warm"

    def apply(self, replicas: Floats) -> Floats:
        return replicas + self.value

    def text(self, before: float, after: float) -> str:
        return f"warm {self.value:g}: {after:g}"


@dataclass(frozen=True)
class ToZero(Buffer):
    """In place of all others where demand stays under `value` tokens per second: no replica."""

    name = "scale_to_zero"

    def apply(self, replicas: Floats) -> Floats:
        return np.zeros_like(replicas)

    def text(self, before: float, after: float) -> str:
        return f"{before:.2f} -> 0, as demand stays under {self.value:g}/s"


def buffers_of(margin: Margin) -> tuple[Buffer, ...]:
    """The buffers of a pool in the order they apply; one that would change nothing is left out."""
    buffers: list[Buffer] = []
    if margin.minimum:
        buffers.append(MinimumMargin(margin.minimum))
    buffers.append(RoundUp())
    if margin.zones > 1:
        buffers.append(ZoneLoss(margin.zones))
    if margin.rollout_unavailable:
        buffers.append(Rollout(margin.rollout_unavailable))
    if margin.warm:
        buffers.append(Warm(margin.warm))
    return tuple(buffers)


def apply_buffers(required: npt.ArrayLike, buffers: Sequence[Buffer]) -> tuple[Floats, ...]:
    """Replicas after each buffer, in order, of the shape of `required`. Absurd demand stays a large number."""
    replicas = np.minimum(np.asarray(required, dtype=np.float64), _MOST_REPLICAS)
    after = []
    for buffer in buffers:
        replicas = buffer.apply(replicas)
        after.append(replicas)
    return tuple(after)


def whole_replicas(replicas: Floats) -> Floats:
    """Up to whole numbers. Float noise does not buy a replica: a number within 1e-9 of a whole one, relative, is it."""
    whole: Floats = np.maximum(np.ceil(replicas - _ROUNDING * np.maximum(replicas, 1)), 0)
    return whole
