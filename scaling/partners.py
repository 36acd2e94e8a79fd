"""What a prefill and a decode pool need of each other: neither serves more of a class than the other can."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from floorcast.config import Config
from scaling.admission import admitted, class_rates
from scaling.capacity import Floats
from scaling.pool_floors import PoolFloors


def served_by_partners(config: Config, made: Mapping[str, PoolFloors]) -> dict[str, Floats]:
    """By pool [classes, windows] the share of each of its classes that the class's other pool has replicas for, within
    its bounds and ceilings. It is 1 where that pool is not short or its demand is not known, and on a unified pool."""
    served = {name: _served(config, name, one) for name, one in made.items() if name in config.together}
    found = {}
    for name, one in made.items():
        found[name] = np.ones((len(one.classes), len(one.floors)))
        if name in config.together:
            for place, member in enumerate(one.classes):
                (other,) = (pool for pool in config.classes[member].pools if pool != name)
                found[name][place] = served[other][made[other].classes.index(member)]
    return found


def _served(config: Config, name: str, made: PoolFloors) -> Floats:
    """[classes, windows] the share of each class that the floors can serve."""
    pool, specs = config.pools[name], [config.classes[member] for member in made.classes]
    short = (made.shortfall > 0) & ~made.on_fallback
    shares = np.ones((len(specs), len(short)))
    if short.any():
        rates = class_rates(made.class_quantile[:, :, short], made.own[:, short])
        shares[:, short], _ = admitted(rates, made.floors[short], specs, capacity=pool.capacity, role=pool.role)
    return shares
