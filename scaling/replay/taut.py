"""The straightest curve between two others."""

from __future__ import annotations

from collections import deque

import numpy as np

from scaling.capacity import Floats

_Point = tuple[int, float]


def taut_string(lower: Floats, upper: Floats) -> Floats:
    """[points] the shortest curve from (0, lower[0]) to the last point of `lower` that stays between the two.

    Both are [points] at 0, 1, 2, ..., with lower <= upper. Of all curves between them its slopes have the smallest
    peak, and the smallest sum of any convex function (Davies and Kovac 2001). By the funnel algorithm: from the point
    reached so far, a chain around the lower curve and one below the upper curve are kept tight; where they cross, the
    string bends around the one that is in the way. Linear in the points.
    """
    last = len(lower) - 1
    floor, ceiling = lower.tolist(), upper.tolist()
    ceiling[last] = floor[last]
    apex: _Point = (0, floor[0])
    bends: list[_Point] = [apex]
    low: deque[_Point] = deque()
    high: deque[_Point] = deque()
    for at in range(1, last + 1):
        apex = _tighten(low, high, apex, (at, floor[at]), bends, sign=1.0)
        apex = _tighten(high, low, apex, (at, ceiling[at]), bends, sign=-1.0)
    bends.extend(low)
    places = np.array([at for at, _ in bends])
    string: Floats = np.interp(np.arange(last + 1), places, np.array([height for _, height in bends]))
    return string


def _tighten(
    own: deque[_Point], other: deque[_Point], apex: _Point, new: _Point, bends: list[_Point], *, sign: float
) -> _Point:
    """Add a point to its chain; returns the apex, moved along the other chain as far as that is in the way.

    `sign` is 1 for the lower chain, whose slopes fall from the apex on, and -1 for the upper one.
    """
    while own:
        before = own[-2] if len(own) > 1 else apex
        if sign * _slope(before, own[-1]) > sign * _slope(own[-1], new):
            break
        own.pop()
    if not own:
        while other and sign * _slope(apex, other[0]) < sign * _slope(apex, new):
            apex = other.popleft()
            bends.append(apex)
    own.append(new)
    return apex


def _slope(first: _Point, second: _Point) -> float:
    return (second[1] - first[1]) / (second[0] - first[0]) if second[0] > first[0] else np.inf
