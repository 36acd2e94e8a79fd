"""What shows that a finding is one, in words."""

from __future__ import annotations

from collections.abc import Mapping

Evidence = Mapping[str, float | int | str]


def in_words(kind: str, evidence: Evidence) -> str:
    """The `evidence` of a row of FINDINGS as a person would say it.

    >>> in_words("outage", {"steps": 11, "usual_tokens_per_s": 160000.0})
    'exactly 0 for 11 steps, where other days have 160,000 tokens/s at that time'
    """
    said = _KINDS.get(kind, _listed)
    # What an older floorcast stored may lack a figure.
    try:
        return said(evidence)
    except KeyError:
        return _listed(evidence)


def _listed(evidence: Evidence) -> str:
    """As `prod rows 12, prod ahead h 3.2`."""
    return ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in evidence.items())


def _number(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _steps(count: float | int | str) -> str:
    return f"{_number(count)} step{'' if count == 1 else 's'}"


def _outage(evidence: Evidence) -> str:
    text = f"exactly 0 for {_steps(evidence['steps'])}"
    if "usual_tokens_per_s" not in evidence:
        return text
    return f"{text}, where other days have {_number(evidence['usual_tokens_per_s'])} tokens/s at that time"


def _gap(evidence: Evidence) -> str:
    text = f"no data for {_steps(evidence['steps_missing'])}"
    return f"{text}, in {_number(evidence['gaps'])} gaps" if "gaps" in evidence else text


def _partial(evidence: Evidence) -> str:
    return f"the least observed step was so for {float(evidence['observed_fraction']):.0%} of it"


def _flat_line(evidence: Evidence) -> str:
    levels = f"{_number(evidence['tokens_in'])} tokens/s in and {_number(evidence['tokens_out'])} out"
    return f"{_steps(evidence['steps'])} of exactly {levels}"


def _unit_jump(evidence: Evidence) -> str:
    after = "until it came back" if evidence["came_back"] == "yes" else "and has not come back"
    return f"{_number(evidence['factor'])} times as much {after}: {_against(evidence)}"


def _level_shift(evidence: Evidence) -> str:
    return f"{float(evidence['factor']):.2f} times the same hours of other weeks: {_against(evidence)}"


def _spike(evidence: Evidence) -> str:
    return f"{_against(evidence)} in the hours around it; {float(evidence['z']):.0f} times the usual spread away"


def _against(evidence: Evidence) -> str:
    return f"{_number(evidence['tokens_per_s'])} tokens/s against {_number(evidence['usual_tokens_per_s'])}"


def _duplicated_interval(evidence: Evidence) -> str:
    if "repeats" in evidence:
        return f"{_steps(evidence['steps'])} exactly as from {evidence['repeats']} on"
    return f"{_steps(evidence['steps'])} repeat earlier ones, {float(evidence['share']):.0%} of all"


def _contradicted(evidence: Evidence) -> str:
    return f"{evidence['says']}; {evidence['remedy']}"


_KINDS = {
    "outage": _outage,
    "gap": _gap,
    "partial": _partial,
    "flat_line": _flat_line,
    "unit_jump": _unit_jump,
    "level_shift": _level_shift,
    "spike": _spike,
    "duplicated_interval": _duplicated_interval,
    "capacity_contradicted": _contradicted,
}
