"""The elasticity figures of the SPEC Research Group (Herbst et al., "Ready for Rain? A View from SPEC Research on the
Future of Cloud Metrics", 2016). The combined speedup is left out: it is undefined where a component is 0."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats


class Elasticity(NamedTuple):
    """In percent. theta: how far supply was below (u) or above (o) demand, relative to it, on average over all time.
    tau: the share of the time that it was. instability: the share of the time in which the two moved unlike."""

    theta_u: float
    theta_o: float
    tau_u: float
    tau_o: float
    instability: float


def elasticity(*, demand: Floats, supply: Floats) -> Elasticity:
    """Of demand and supply in replicas at evenly spaced times, [times] each. Demand below 1 counts as 1.

    theta_u = 100/T sum(max(d - s, 0) / d dt), tau_u = 100/T sum(max(sgn(d - s), 0) dt), o mirrors them;
    instability = 100/(T - t1) sum over t >= 2 of min(|sgn(ds) - sgn(dd)|, 1) dt.
    """
    demand = np.maximum(demand, 1.0)
    short, over = np.maximum(demand - supply, 0.0), np.maximum(supply - demand, 0.0)
    unlike = np.sign(np.diff(supply)) != np.sign(np.diff(demand))
    return Elasticity(
        theta_u=float(100 * (short / demand).mean()),
        theta_o=float(100 * (over / demand).mean()),
        tau_u=float(100 * (short > 0).mean()),
        tau_o=float(100 * (over > 0).mean()),
        instability=float(100 * unlike.mean()) if unlike.size else 0.0,
    )
