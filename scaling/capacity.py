"""From token rates to replicas, and from required replicas to whole ones with margins."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from floorcast.columns import Metric
from floorcast.pool import Capacity, Margin

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.str_]

_ROUNDING = 1e-9
_MOST_REPLICAS = 1e15


def required_replicas(
    *,
    tokens_in_per_s: npt.ArrayLike,
    tokens_out_per_s: npt.ArrayLike,
    capacity: Capacity,
    role: Literal["unified", "prefill", "decode"],
) -> tuple[Floats, Strings]:
    """Replicas that sustain these rates, not rounded, and the term that decided.

    Both rates are tokens per second, of one shape, which the two results have too. With C_in and C_out the
    capacity of a replica and U its target utilization:

    - unified, combine max: max(R_in / (C_in U), R_out / (C_out U)); binding `tokens_in` or `tokens_out`
    - unified, combine sum: (R_in / C_in + R_out / C_out) / U; binding `sum`
    - prefill: R_in / (C_in U); decode: R_out / (C_out U)
    """
    in_load = np.asarray(tokens_in_per_s, dtype=np.float64) / capacity.prefill_tokens_per_s
    out_load = np.asarray(tokens_out_per_s, dtype=np.float64) / capacity.decode_tokens_per_s
    if role == "prefill":
        load, binding = in_load, np.full(in_load.shape, Metric.TOKENS_IN.value)
    elif role == "decode":
        load, binding = out_load, np.full(in_load.shape, Metric.TOKENS_OUT.value)
    elif capacity.combine == "sum":
        load, binding = in_load + out_load, np.full(in_load.shape, "sum")
    else:
        load = np.maximum(in_load, out_load)
        binding = np.where(out_load > in_load, Metric.TOKENS_OUT.value, Metric.TOKENS_IN.value)
    return load / capacity.target_utilization, binding


class Buffered(NamedTuple):
    """Required replicas after each margin, in the order they apply."""

    minimum: Floats
    rounded: Ints
    warm: Ints


def add_margins(required: npt.ArrayLike, margin: Margin) -> Buffered:
    """Minimum margin, then up to whole replicas, then the warm ones. Works on arrays of any shape.

    Float noise does not buy a replica: a number within 1e-9 of a whole one, relative, is that whole one.
    """
    minimum = np.asarray(required, dtype=np.float64) * (1 + margin.minimum)
    finite = np.minimum(minimum, _MOST_REPLICAS)
    rounded = np.maximum(np.ceil(finite - _ROUNDING * np.maximum(finite, 1)), 0).astype(np.int64)
    return Buffered(minimum, rounded, rounded + margin.warm)
