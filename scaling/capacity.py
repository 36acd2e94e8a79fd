"""From token rates to replicas."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from floorcast.columns import Metric
from floorcast.pool import PoolSettings
from floorcast.replica import Capacity

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Strings = npt.NDArray[np.str_]


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


def full_load(pool: PoolSettings, tokens_in_per_s: npt.ArrayLike, tokens_out_per_s: npt.ArrayLike) -> Floats:
    """The replicas that these rates take at full use, of their shape."""
    replicas, _ = required_replicas(
        tokens_in_per_s=tokens_in_per_s, tokens_out_per_s=tokens_out_per_s, capacity=pool.capacity, role=pool.role
    )
    load: Floats = replicas * pool.capacity.target_utilization
    return load
