"""A floor that travels as a metric, past the tolerance of the HorizontalPodAutoscaler.

An autoscaler that averages a metric over its replicas, as those of KEDA do with a target of 1, wants `ceil(value)`
replicas, but leaves the `current` ones as they are while `|value / current - 1| <= tolerance`, 0.1 unless the cluster
or the autoscaler says otherwise (`pkg/controller/podautoscaler/replica_calculator.go` of Kubernetes). With the bare
floor as its value 20 replicas would stay under a floor of 21.
"""

from __future__ import annotations

from fractions import Fraction

TOLERANCE = 0.1
"""Kubernetes' own, `--horizontal-pod-autoscaler-tolerance`."""


def through_tolerance(floor: int, tolerance: float = TOLERANCE) -> int:
    """The least whole value that leaves no replica count under `floor` where it is.

    The highest count under it is `floor - 1`. It is moved, and with it every lower one, if the value is above
    `(1 + tolerance) (floor - 1)`; then the autoscaler wants the value itself. So up to a floor of 10 the value is the
    floor, and above it a fleet that has to grow grows up to a tenth past it. Counts from the floor on stay until the
    value is more than the tolerance under them.

    >>> [through_tolerance(floor) for floor in (0, 1, 10, 11, 21, 55)]
    [0, 1, 10, 12, 23, 60]
    >>> through_tolerance(21, tolerance=0)
    21
    """
    if floor <= 1:
        return floor
    # As the decimal that was written: in floats 1.1 x 30 is not 33.
    above = (1 + Fraction(str(tolerance))) * (floor - 1)
    return max(floor, int(above) + 1)
