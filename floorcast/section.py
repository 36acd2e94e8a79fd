"""What every part of the configuration is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _fraction(value: object) -> object:
    """`10%` and `10 %` read as 0.1."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        number = value.rstrip().rstrip("%")
        try:
            return float(number) / 100
        except ValueError:
            raise ValueError(f"{value!r} is not a share; write it as in 0.1 or 10%") from None
    return value


def _count_or_share(value: object) -> object:
    """`3` is a count, `10%` and 0.1 are shares."""
    value = _fraction(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and value >= 1):
        raise ValueError(f"{value!r} is neither whole replicas nor a share under 100 %; write it as in 3 or 10%")
    return value


CountOrShare = Annotated[int | float, BeforeValidator(_count_or_share)]
"""Replicas where it is an int, a share of them where it is a float."""

Fraction = Annotated[float, BeforeValidator(_fraction)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63)]


class Section(BaseModel):
    """Base of every part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)
