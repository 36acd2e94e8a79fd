"""What the demo fleet's traffic looks like, as data: who calls, when, how burstily, and with how many tokens."""

from __future__ import annotations

from dataclasses import dataclass

WORK_HOURS = (
    *(0.07, 0.06, 0.06, 0.06, 0.07, 0.09, 0.17, 0.40, 0.76, 0.95, 1.00, 0.96),
    *(0.80, 0.89, 0.98, 0.97, 0.88, 0.66, 0.42, 0.30, 0.24, 0.19, 0.13, 0.09),
)
"""Office use by local hour, relative to its peak: two humps with a lunch dip, and almost nothing at night."""

WAKING_HOURS = (
    *(0.30, 0.19, 0.13, 0.10, 0.10, 0.13, 0.23, 0.42, 0.64, 0.81, 0.90, 0.93),
    *(0.92, 0.95, 0.97, 0.97, 0.95, 0.92, 0.90, 0.93, 0.96, 0.90, 0.72, 0.49),
)
"""Use by people at work and at home by local hour, relative to its peak."""

ALL_HOURS = (1.0,) * 24

WORK_WEEK = (0.98, 1.03, 1.04, 1.01, 0.89, 0.14, 0.12)
WAKING_WEEK = (1.00, 1.02, 1.02, 1.01, 0.95, 0.62, 0.66)
AUTOMATED_WEEK = (1.00, 1.00, 1.00, 1.00, 0.97, 0.74, 0.70)
"""Factors by local weekday, Monday first."""


@dataclass(frozen=True)
class Audience:
    """Callers who share a clock. Their requests follow `weight * hours[hour] * week[weekday]` in `zone`."""

    zone: str
    weight: float
    hours: tuple[float, ...]
    week: tuple[float, ...]


@dataclass(frozen=True)
class Lengths:
    """Tokens of one request: lognormal, given by its mean and coefficient of variation."""

    mean: float
    cv: float


@dataclass(frozen=True)
class ClassShape:
    """The traffic of one workload class.

    requests_per_s is where the audiences add up to 1, at the end of the history. A class without audiences
    sends only while its nightly job runs. interarrival_cv makes a minute's count vary by cv^2 times its mean;
    burst_sigma is the spread, in log units, of the rate's own wander over minutes. top_of_hour is the share by
    which scheduled callers lift the rate on the hour, fading over the next minutes.
    """

    requests_per_s: float
    audiences: tuple[Audience, ...]
    growth_per_week: float
    interarrival_cv: float
    burst_sigma: float
    tokens_in: Lengths
    tokens_out: Lengths
    top_of_hour: float = 0.0


FLEET: dict[str, ClassShape] = {
    "agent": ClassShape(
        requests_per_s=1.5,
        audiences=(
            Audience("UTC", 0.7, ALL_HOURS, AUTOMATED_WEEK),
            Audience("Europe/Berlin", 0.3, WORK_HOURS, WORK_WEEK),
        ),
        growth_per_week=0.05,
        interarrival_cv=2.0,
        burst_sigma=0.14,
        tokens_in=Lengths(8000, 1.1),
        tokens_out=Lengths(400, 1.2),
        top_of_hour=0.9,
    ),
    # Synthetic data: answers as long as prompts, so that decode binds at night and prefill by day.
    "batch": ClassShape(
        requests_per_s=11.0,
        audiences=(),
        growth_per_week=0.01,
        interarrival_cv=1.2,
        burst_sigma=0.06,
        tokens_in=Lengths(1500, 0.8),
        tokens_out=Lengths(1500, 0.8),
    ),
    "chat": ClassShape(
        requests_per_s=40.0,
        audiences=(
            Audience("Europe/Berlin", 0.70, WORK_HOURS, WAKING_WEEK),
            Audience("Europe/Berlin", 0.20, WAKING_HOURS, WAKING_WEEK),
            Audience("America/Los_Angeles", 0.50, WORK_HOURS, WAKING_WEEK),
        ),
        growth_per_week=0.03,
        interarrival_cv=1.3,
        burst_sigma=0.07,
        tokens_in=Lengths(1400, 1.3),
        tokens_out=Lengths(300, 1.0),
    ),
    "code-generation": ClassShape(
        requests_per_s=31.0,
        audiences=(
            Audience("Europe/Berlin", 0.94, WORK_HOURS, WORK_WEEK),
            Audience("UTC", 0.06, ALL_HOURS, AUTOMATED_WEEK),
        ),
        growth_per_week=0.04,
        interarrival_cv=2.4,
        burst_sigma=0.10,
        tokens_in=Lengths(2050, 1.0),
        tokens_out=Lengths(80, 2.1),
    ),
    "document-analysis": ClassShape(
        requests_per_s=2.1,
        audiences=(
            Audience("Europe/Berlin", 0.75, WORK_HOURS, WORK_WEEK),
            Audience("America/New_York", 0.35, WORK_HOURS, WORK_WEEK),
        ),
        growth_per_week=0.025,
        interarrival_cv=1.8,
        burst_sigma=0.11,
        tokens_in=Lengths(12000, 0.9),
        tokens_out=Lengths(500, 0.8),
    ),
    "summarization": ClassShape(
        requests_per_s=3.0,
        audiences=(
            Audience("Europe/Berlin", 0.70, WORK_HOURS, WORK_WEEK),
            Audience("America/New_York", 0.30, WAKING_HOURS, WAKING_WEEK),
        ),
        growth_per_week=0.02,
        interarrival_cv=1.5,
        burst_sigma=0.09,
        tokens_in=Lengths(4000, 0.9),
        tokens_out=Lengths(300, 0.6),
    ),
}
"""By class name. Lengths and burstiness follow public production traces: code as in Azure 2023 (2,048 tokens in
with cv 0.96, short answers with cv 2.1), interarrival cv from 1.1 to 2.5 as in ServeGen's busy clients."""
