"""A decision in words, for one lane."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from scaling.overlay.decide import Decision, Rule
from scaling.overlay.settings import Settings, Trigger
from scaling.overlay.signals import Kind
from scaling.overlay.state import QUEUES

_UNITS = {
    Trigger.WAITING: " per replica",
    Trigger.TTFT: " s",
    Trigger.TTFT_PER_1K_PROMPT: " s",
    Trigger.ITL: " s",
}
_RATIOS = (
    Trigger.TOKEN_RATE,
    Trigger.BACKLOG,
    Trigger.LOOKAHEAD,
    Trigger.KV_CACHE,
    Trigger.GPU_UTILIZATION,
    Trigger.UTILIZATION,
    Trigger.STEP,
    Trigger.THRESHOLD,
)
_QUEUES_OF = {
    Trigger.WAITING: Kind.WAITING_REQUESTS,
    Trigger.SCORE: Kind.WAITING_REQUESTS,
    Trigger.BACKLOG: Kind.WAITING_TOKENS_IN,
    Trigger.LOOKAHEAD: Kind.WAITING_TOKENS_IN,
}
_RULES = {
    Rule.TRIGGERS: "triggers",
    Rule.STABILIZATION: "stabilization window",
    Rule.FORECAST: "wanted again by the floors ahead",
    Rule.COOLDOWN: "cooldown",
    Rule.PACE: "pace per minute",
    Rule.DEAD_MAN: "dead man: no signal, safe_replicas",
    Rule.FLOOR: "floor",
    Rule.CEILING: "ceiling",
}


class Vote(StrEnum):
    """What a trigger says of the replicas there are."""

    OUT = "out"
    HOLD = "hold"
    IN = "in"
    STALE = "stale"
    """It lacks a signal that it has had, and holds."""
    ABSENT = "absent"
    """It lacks a signal that the pool never had, and has no say."""


class TriggerVote(NamedTuple):
    """One enabled trigger: what it measured, against what, and how many replicas that means (None: any number, or not
    known)."""

    trigger: str
    value: float
    target: float
    replicas: float | None
    vote: Vote
    stuck: bool
    """A queue it looks at is not believed and counts as empty."""

    def __str__(self) -> str:
        if self.vote is Vote.ABSENT:
            return f"{self.trigger:<19}no signal yet"
        if self.vote is Vote.STALE:
            return f"{self.trigger:<19}no fresh signal: holds"
        unit = _UNITS.get(Trigger[self.trigger.upper()], "")
        figures = f"{_shown(self.value, self.trigger)} of {_shown(self.target, self.trigger)}{unit}"
        means = "" if self.replicas is None else f"{math.ceil(self.replicas - 1e-9):g} replicas"
        queue = "; its queue does not move and is not believed" if self.stuck else ""
        return f"{self.trigger:<19}{figures:<24}{means:<14}{self.vote}{queue}"


class Explanation(NamedTuple):
    """Why a lane's decision is what it is."""

    current: int
    desired: int
    votes: tuple[TriggerVote, ...]
    rules: tuple[tuple[str, int, int], ...]
    """Each rule that changed the number, with the number before and after."""
    floor: int
    ceiling: int
    fleet: dict[str, int]
    """Replicas ready, starting and draining, as far as known."""
    stale: tuple[str, ...]
    """Signals that were there before and are not fresh, where a trigger holds for it."""
    alert: bool

    def lines(self) -> list[str]:
        """For people: the number first, then every step that made it."""
        head = f"{self.desired} replicas" + ("" if self.desired == self.current else f", {self.current} until now")
        text = [head, *(f"  {vote}".rstrip() for vote in self.votes)]
        text += [f"  {rule}: {before} becomes {after}" for rule, before, after in self.rules]
        text.append(f"  bounds: floor {self.floor}, ceiling {self.ceiling}")
        text.append(f"  fleet: {', '.join(f'{count} {name}' for name, count in self.fleet.items()) or 'not known'}")
        if self.stale:
            text.append(f"  not fresh: {', '.join(self.stale)}; nothing is let go until it is")
        if self.alert:
            text.append("  alert: no signal at all for the dead-man interval")
        return text


def explain(decision: Decision, settings: Settings, lane: int) -> Explanation:
    """Everything that made the decision of one lane."""
    after = [int(min(number, 1e15)) for number in decision.after[:, lane]]
    current = int(decision.current[lane])
    rules = [
        (_RULES[rule], before, number)
        for rule, before, number in zip(Rule, [current, *after], after, strict=False)
        if before != number
    ]
    votes = tuple(_vote(decision, trigger, lane) for trigger in Trigger if settings.enabled[trigger, lane])
    holds = any(vote.vote is Vote.STALE for vote in votes)
    fleet = {name: float(getattr(decision.signals, name)[lane]) for name in ("ready", "starting", "draining")}
    return Explanation(
        current=current,
        desired=int(decision.desired[lane]),
        votes=votes,
        rules=tuple(rules),
        floor=int(decision.floor[lane]),
        ceiling=int(decision.ceiling[lane]),
        fleet={name: int(count) for name, count in fleet.items() if count >= 0},
        stale=tuple(kind.name.lower() for kind in Kind if holds and decision.unknown.lost[kind, lane]),
        alert=bool(decision.alert[lane]),
    )


def _vote(decision: Decision, trigger: Trigger, lane: int) -> TriggerVote:
    made, known, current = decision.wishes, decision.unknown, float(decision.current[lane])
    up, down = (float(wish[trigger, lane]) for wish in (made.up, made.down))
    if math.ceil(up - 1e-9) > current if math.isfinite(up) else False:
        vote, replicas = Vote.OUT, up
    elif known.absent[trigger, lane]:
        vote, replicas = Vote.ABSENT, -math.inf
    elif known.missing[trigger, lane]:
        vote, replicas = Vote.STALE, -math.inf
    else:
        vote, replicas = (Vote.IN if math.ceil(max(down, 0) - 1e-9) < current else Vote.HOLD), down
    queue = _QUEUES_OF.get(trigger)
    return TriggerVote(
        trigger=trigger.name.lower(),
        value=float(made.value[trigger, lane]),
        target=float(made.target[trigger, lane]),
        replicas=replicas if math.isfinite(replicas) else None,
        vote=vote,
        stuck=queue is not None and bool(decision.observed.stuck[queue - QUEUES.start, lane]),
    )


def _shown(figure: float, trigger: str) -> str:
    return f"{figure:.0%}" if Trigger[trigger.upper()] in _RATIOS and math.isfinite(figure) else f"{figure:.3g}"
