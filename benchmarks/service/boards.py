"""Boards of any number of pools, as the loop would make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from floorcast.types import FloorSchedule, FloorWindow, PoolSchedule, Reason, Rung
from pipelines.service.board import Board, PoolDecision, Publication, SourceHealth, TickTimes

NOW = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
TICK = timedelta(seconds=15)


def schedule(pools: int) -> FloorSchedule:
    """One window a pool."""
    planned = {}
    for number in range(pools):
        out = 1000.0 + 17 * (number % 500)
        reason = Reason(
            binding="tokens_out",
            needed_by=NOW + timedelta(minutes=9),
            lead_s=570,
            quantile=0.95,
            tokens_in_per_s=2 * out,
            tokens_out_per_s=out,
            median_tokens_per_s=0.8 * out,
            demand_tokens_per_s=out,
            required_replicas=out / 1950,
        )
        window = FloorWindow(start=NOW, end=NOW + timedelta(hours=48), min_replicas=2 + number % 60, reason=reason)
        planned[f"pool-{number:04d}"] = PoolSchedule(gate="untested", rung=Rung.FRESH, windows=(window,))
    return FloorSchedule(
        version=42,
        mode="advisory",
        issued_at=NOW,
        valid_until=NOW + timedelta(hours=48),
        content_hash=f"sha256:{'0' * 64}",
        pools=planned,
    )


def board(published: FloorSchedule, ticks: int) -> Board:
    """At a tick: decisions move a little from one to the next."""
    now = NOW + ticks * TICK
    decisions = {}
    for number, (name, pool) in enumerate(published.pools.items()):
        floor = pool.windows[0].min_replicas
        desired = floor + (ticks + number) % 5
        decisions[name] = PoolDecision(
            pool=name,
            decided_at=now,
            desired=desired,
            floor=floor,
            floor_source="schedule",
            ceiling=80,
            current=desired,
            ready=desired,
            starting=0,
            draining=0,
            alert=False,
            lost=(),
            triggers=({"name": "tokens", "value": 0.7, "target": 0.8, "replicas": desired, "vote": "hold"},),
            rules=(),
            words=f"{desired} replicas",
            window=pool.windows[0],
        )
    return Board(
        now=now,
        started_at=NOW,
        ticks=ticks,
        tick_seconds=0.05,
        publication=Publication(published),
        decisions=decisions,
        sources=(SourceHealth("prod", now, None, 0.1),),
        tick_times=TickTimes().plus(0.05),
    )
