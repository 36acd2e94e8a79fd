"""What tuning finds of a pool: settings, what to expect of them, and whether floors pay."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from floorcast.overlay import Policy
from floorcast.types import Frozen

Gate = Literal["open", "closed", "untested"]


def _of_floors(description: str, *, ge: float | None = None, gt: float | None = None) -> Any:
    """A setting that only floors have."""
    return Field(default=None, ge=ge, gt=gt, exclude_if=lambda value: value is None, description=description)


class TunedSettings(Frozen):
    """What tuning chooses. Without a `quantile` it is the overlay alone, whose floors are the plain minimums; None is
    the pool's own."""

    quantile: float | None = Field(ge=0.5, le=0.99, description="`margin.quantile`")
    minimum_margin: float = Field(ge=0, description="`margin.minimum`")
    target_utilization: float = Field(gt=0, le=1, description="`capacity.target_utilization`, and that of the overlay")
    overlay_utilization: float | None = Field(
        default=None,
        gt=0,
        le=1,
        exclude_if=lambda utilization: utilization is None,
        description="`overlay.target_utilization` where it is another: 1 under floors that lead, where it adds what "
        "they missed",
    )
    peak: bool | None = _of_floors("`margin.peak`")
    warm: int | None = _of_floors("`margin.warm`", ge=0)
    dwell_s: float | None = _of_floors("`shape.dwell`", ge=0)
    step_down: float | None = _of_floors("`shape.step_down`", gt=0)
    policy: Policy = Field(description="`overlay.policy`")
    scale_in_window_s: float = Field(ge=0, description="`overlay.scale_in.stabilization`")
    lookahead_quantile: float = Field(gt=0, lt=1, description="`overlay.lookahead.quantile`")


class Interval(Frozen):
    """A figure over the judged days, and between what it lies in nine of ten draws of such days."""

    value: float
    low: float
    high: float


class Expected(Frozen):
    """What settings cost and kept on days that did not choose them."""

    settings: TunedSettings = Field(description="chosen on all days, for the days to come")
    gpu_hours_per_day: Interval
    on_time: Interval = Field(description="share of the tokens within the longest wait promised")
    over_clairvoyant: Interval | None = Field(
        description="cost as a multiple of the clairvoyant's; null where nothing can keep the promise"
    )


class Tuning(Frozen):
    """One pool's outcome. `days` were judged, up to `as_of`, each with settings chosen on those before it."""

    pool: str
    as_of: AwareDatetime
    days: int = Field(ge=1)
    promise: float = Field(gt=0, le=1, description="`slo.on_time`")
    gate: Gate
    why: str
    floors: Expected = Field(description="with floors from forecasts under the overlay")
    overlay_alone: Expected
    now: Expected = Field(description="as the pool was set when it was tuned")

    @property
    def settings(self) -> TunedSettings:
        """Those that belong to the gate."""
        return self.overlay_alone.settings if self.gate == "closed" else self.floors.settings
