"""Floors that others would have asked for, to compare ours with.

All of them see `required` alone: the replicas that each window took at the target utilization, before rounding,
[windows]; and at a window, only those before it. Where nothing before it is known yet, a floor is 0. A floor of a
window is in force at its start, so its replicas serve a startup later, as those of any policy.
"""

from __future__ import annotations

import numpy as np

from scaling.capacity import Floats, Ints

_ROUNDING = 1e-9
_HOUR_S, _DAY_S = 3600.0, 86400.0
_MANAGED_REFRESH_S = 6 * _HOUR_S
_MANAGED_DAYS = 14
_MANAGED_BUFFER_S = 300.0


def static_peak(required: Floats) -> Ints:
    """As many all along as the busiest window took: known only afterwards."""
    return np.full(len(required), whole(required.max()), dtype=np.int64)


def static_mean(required: Floats) -> Ints:
    """As many all along as windows took on average."""
    return np.full(len(required), whole(required.mean()), dtype=np.int64)


def last_value(required: Floats, *, margin: float) -> Ints:
    """What the window before took, and `margin` more."""
    return whole(np.concatenate([[0.0], required[:-1]]) * (1 + margin))


def seasonal_naive(required: Floats, *, season: int, ahead: int, margin: float) -> Ints:
    """The most taken a season of so many windows ago, from then to `ahead` windows later, and `margin` more."""
    most = np.lib.stride_tricks.sliding_window_view(np.pad(required, (0, ahead), mode="edge"), ahead + 1).max(axis=1)
    # What lies ahead of the same window a season ago is known by now only if it is shorter than a season.
    floors = np.zeros(len(required))
    if ahead < season < len(required):
        floors[season:] = most[: len(required) - season]
    return whole(floors * (1 + margin))


def managed(required: Floats, *, window_s: float, margin: float) -> Ints:
    """As a cloud's predictive scaling does, by its documentation: a forecast for each hour of the next 48, made anew
    every six, from up to 14 days; asked for five minutes before the hour; never lower than what runs, which is the
    overlay's matter. How it forecasts is not told: here, the mean of the same hour of day, once a day of it is known.
    """
    per_hour, per_day = round(_HOUR_S / window_s), round(_DAY_S / window_s)
    refresh, buffer = round(_MANAGED_REFRESH_S / window_s), round(_MANAGED_BUFFER_S / window_s)
    floors = np.zeros(len(required))
    forecast = np.zeros(24)
    for window in range(len(required)):
        if window % refresh == 0 and window >= per_day:
            days = min(window // per_day, _MANAGED_DAYS)
            past = required[window - days * per_day : window].reshape(days, 24, per_hour).mean(axis=(0, 2))
            # The past begins at this window's hour of day.
            forecast = np.roll(past, window // per_hour % 24)
        hours = {window // per_hour % 24, (window + buffer) // per_hour % 24}
        floors[window] = max(forecast[hour] for hour in hours)
    return whole(floors * (1 + margin))


def whole(replicas: Floats) -> Ints:
    """Up to whole replicas; float noise does not buy one."""
    return np.maximum(np.ceil(replicas - _ROUNDING * np.maximum(replicas, 1)), 0).astype(np.int64)
