"""floorcast's own forecasts on the same origins.

The lead window is replayed by `forecasting.mixture.replay`: the product's experts, spreads, weights and correction,
fitted anew each day. It differs from a cycle in that it remembers from the first day on, where a cycle looks back six
days, and judges each day's fit on the days after it. The outlook, and the timing of 1,000 classes, are the product's
own functions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from floorcast.columns import QUANTILE_LEVELS, quantile_column
from floorcast.errors import ForecastError
from forecasting.forecast import Request, StoredFit, forecast_all
from forecasting.mixture import replay
from forecasting.rows import MIXTURE
from forecasting.selection import fit_series
from forecasting.series import FloatArray, Series
from forecasting.verdict import Target

FLOOR_QUANTILE = 0.95
LONGEST_LEAD = 2


def lead_quantiles(series: Series, *, lead_steps: int, first: int, levels: Sequence[float]) -> FloatArray:
    """Quantiles of the greatest rate of the lead window at every origin from `first` on: (origins, levels)."""
    every = replay(series.view(series.end), lead_steps=lead_steps, first_origin=first)
    return every[:, [QUANTILE_LEVELS.index(level) for level in levels]]


def outlook_quantiles(
    series: Series, *, origins: Sequence[int], horizon: int, refit_every: int, levels: Sequence[float]
) -> tuple[FloatArray, dict[str, float]]:
    """Quantiles of each of the next `horizon` steps, (origins, horizon, levels), and the mean weight of each candidate.

    Fitted at the first origin and then every `refit_every` steps, each time on what was known then. A candidate is
    named `lead NAME` or `outlook NAME`. Raises ForecastError where a forecast cannot be made.
    """
    target = Target(quantile=FLOOR_QUANTILE, lead_steps=LONGEST_LEAD, horizon_steps=horizon)
    columns = [quantile_column(level) for level in levels]
    requests: list[Request] = []
    fits: dict[str, StoredFit] = {}
    weights: dict[str, list[float]] = defaultdict(list)
    for origin in origins:
        cutoff = series.start + origin * series.step
        if (origin - origins[0]) % refit_every == 0:
            rows, scores = fit_series(series, cutoff=cutoff, target=target, timer=time.perf_counter)
            fits = {
                str(row["horizon"]): StoredFit(str(row["model"]), str(row["parameters"]), str(row["margins"]))
                for row in rows
            }
            for score in scores:
                if score["model"] != MIXTURE:
                    weights[f"{score['horizon']} {score['model']}"].append(float(str(score["weight"])))
        requests.append(Request(series, cutoff, target, lead=fits["lead"], outlook=fits["outlook"]))
    made: list[FloatArray] = []
    for request, outcome in zip(requests, forecast_all(requests), strict=True):
        if isinstance(outcome, str):
            raise ForecastError(outcome, where=f"{request.where} at {request.cutoff}")
        made.append(outcome.frame.select(columns).to_numpy())
    return np.stack(made), {name: float(np.mean(shares)) for name, shares in weights.items()}
