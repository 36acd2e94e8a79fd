"""Fourteen days of one pool at 10 s steps with 50 settings of its overlay; the share of the policy and of the rest."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.report import parser, peak_memory_gib, write
from floorcast.pool import Pool
from scaling.overlay.lanes import repeat
from scaling.overlay.settings import settings_of
from scaling.overlay.signals import Signals
from scaling.replay.clairvoyant import clairvoyant
from scaling.replay.conditions import Conditions
from scaling.replay.lanes import Policy, lanes_of, overlay_policy
from scaling.replay.replay import replay
from scaling.replay.traffic import Stream, Traffic

START = datetime(2026, 11, 16, tzinfo=UTC)
DAYS, STEP_S, SETTINGS = 14, 10.0, 50
POOL = Pool.model_validate(
    {
        "gpu": {"type": "H100", "per_replica": 2, "usd_per_gpu_hour": 3.99},
        "capacity": {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600},
        "startup": {"p90": "5m"},
        "bounds": {"min": 2, "max": 60},
    }
)
CONDITIONS = Conditions(
    startup_s=np.random.default_rng(1).lognormal(np.log(240), 0.2, 200),
    seconds_per_token=0.03,
    kv_tokens=400_000.0,
    retry_share=0.5,
    crashes_per_hour=0.001,
)


def traffic(rng: np.random.Generator) -> Traffic:
    """A day's sine of about 20 replicas at its mean, with bursts of minutes and noise within them."""
    steps = round(DAYS * 86400 / STEP_S)
    at_s = np.arange(steps) * STEP_S
    bursts = np.repeat(np.exp(0.15 * rng.standard_normal(-(-steps // 30))), 30)[:steps]
    rate = 30_000 * (1.3 + np.sin(2 * np.pi * at_s / 86400)) * bursts * np.exp(0.1 * rng.standard_normal(steps))
    tokens_out = rate * STEP_S
    stream = Stream("chat", 1.5 * tokens_out, tokens_out, tokens_out / 300, max_wait_s=10.0, timeout_s=120.0)
    return Traffic(START, STEP_S, (stream,))


def timed(policy: Policy, spent: list[float]) -> Policy:
    def timing(signals: Signals, now_s: float) -> np.ndarray:
        began = time.process_time()
        desired = policy(signals, now_s)
        spent[0] += time.process_time() - began
        return desired

    return timing


def main() -> None:
    given = parser("replay", __doc__ or "").parse_args()
    utilization = np.linspace(0.4, 0.95, SETTINGS)
    names = [f"u{one:.3f}" for one in utilization]
    settings = repeat(settings_of([POOL]), SETTINGS)._replace(target_utilization=utilization)
    demand, spent = traffic(np.random.default_rng(0)), [0.0]
    with threadpool_limits(1):
        began, began_cpu = time.perf_counter(), time.process_time()
        result = replay(
            demand,
            lanes_of(dict.fromkeys(names, POOL.bounds.min), window_s=300.0, overlay=names),
            pool=POOL,
            conditions=CONDITIONS,
            policy=timed(overlay_policy(settings), spent),
            seed=1,
        )
        simulated = time.process_time() - began_cpu
        figures = result.figures
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        began = time.perf_counter()
        best = clairvoyant(demand, pool=POOL, conditions=CONDITIONS, on_time=0.99).figures
        clairvoyant_seconds = time.perf_counter() - began
    kept = figures.filter(figures["on_time_share"] >= 0.99)["gpu_hours"]
    write(
        "replay",
        summary={
            "seconds": seconds,
            "cpu_seconds": cpu,
            "policy_cpu_seconds": spent[0],
            "figures_cpu_seconds": cpu - simulated,
            "clairvoyant_seconds": clairvoyant_seconds,
            "peak_memory_gib": peak_memory_gib(),
        },
        detail={
            "steps": demand.steps,
            "settings": SETTINGS,
            "ticks": round(demand.steps * STEP_S / CONDITIONS.tick_s),
            "overlay_over_clairvoyant": kept.min() / best["gpu_hours"][0] if kept.len() else None,
        },
        out=given.json,
    )


if __name__ == "__main__":
    main()
