"""A small fleet whose every frame is made by formula: two pools, three classes, one of them barely known."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest

from dashboards.data import SiteData, count_rejects
from floorcast.columns import (
    ACCURACY,
    COSTS,
    DEMAND,
    DRIFT,
    FINDINGS,
    FITS,
    FLOORS,
    FORECASTS,
    QUANTILE_LEVELS,
    REJECTS,
    SCORES,
    conform,
)
from floorcast.columns import quantile_column as column
from floorcast.config import Config
from floorcast.parsing import parse_config
from floorcast.types import ClassDemand, Reason
from store.publications import PublicationRecord

NOW = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
STEP = timedelta(minutes=5)
CLASSES = ("agent", "chat", "nightly-batch")
METRICS = ("tokens_in", "tokens_out")

CONFIG = """
zone: Europe/Berlin
pools:
  chat-70b:
    model: llama-70b-chat
    region: eu-central
    gpu: {type: H100, per_replica: 2, usd_per_gpu_hour: 3.99}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 24}
  batch-8b:
    gpu: {type: L40S}
    capacity: {prefill_tokens_per_s: 17000, decode_tokens_per_s: 5366}
    startup: {p90: 60s}
    bounds: {min: 0, max: 200}
    scale_to_zero: {wake_up: 1m, below_tokens_per_s: 100}
classes:
  chat: {kind: chat, pools: [chat-70b]}
  agent: {kind: agent, pools: [chat-70b]}
  nightly-batch: {kind: batch, pools: [batch-8b]}
"""


def rate(workload_class: str, metric: str, moment: datetime) -> float:
    """Tokens per second of a day's wave with its peak at 14:00 UTC."""
    size = {"chat": 9000.0, "agent": 3000.0, "nightly-batch": 6000.0}.get(workload_class, 800.0)
    hour = moment.hour + moment.minute / 60
    wave = 1.15 + math.cos((hour - 14) / 24 * math.tau)
    ripple = 1 + 0.08 * math.sin(moment.timestamp() / 470) + 0.05 * math.sin(moment.timestamp() / 97)
    return size * wave * ripple * (1.6 if metric == "tokens_in" else 1.0)


def demand_of(workload_class: str, *, start: datetime, end: datetime) -> pl.DataFrame:
    rows = []
    moment = start
    while moment < end:
        rows.append(
            {
                "workload_class": workload_class,
                "step_start": moment,
                **{metric: rate(workload_class, metric, moment) * 300 for metric in METRICS},
                "requests": 100.0,
                "peak_tokens_in_per_s": 1.0,
                "peak_tokens_out_per_s": 1.0,
                "observed_fraction": 1.0,
                "source": "made",
            }
        )
        moment += STEP
    return conform(pl.DataFrame(rows), DEMAND)


def forecast_of(workload_class: str, metric: str, *, cutoff: datetime, steps: int) -> pl.DataFrame:
    rows = []
    for ahead in range(steps):
        moment = cutoff + ahead * STEP
        middle = rate(workload_class, metric, moment)
        spread = 0.12 + 0.1 * ahead / 576
        rows.append(
            {
                "workload_class": workload_class,
                "metric": metric,
                "horizon": "lead",
                "cutoff": cutoff,
                "step_start": moment,
                "model": "mstl_ets",
                **{column(level): middle * (1 + spread * 3 * (level - 0.5)) for level in QUANTILE_LEVELS},
            }
        )
    return conform(pl.DataFrame(rows), FORECASTS)


def floors_of(pool: str, classes: tuple[str, ...], *, start: datetime, steps: int, rung: str = "fresh") -> pl.DataFrame:
    rows = []
    for ahead in range(steps):
        moment = start + ahead * STEP
        median = sum(rate(name, "tokens_out", moment) for name in classes)
        demand = median * 1.2
        required = demand / (2600 * 0.75)
        reason = Reason(
            binding="tokens_out",
            needed_by=moment + STEP,
            lead_s=570,
            quantile=0.95,
            tokens_in_per_s=demand * 1.6,
            tokens_out_per_s=demand,
            median_tokens_per_s=median,
            demand_tokens_per_s=demand,
            required_replicas=required,
            classes={
                name: ClassDemand(
                    tokens_in_per_s=1, tokens_out_per_s=1, model_in="seasonal_naive", model_out="mstl_ets"
                )
                for name in classes
            },
        )
        rows.append(
            {
                "pool": pool,
                "window_start": moment,
                "window_end": moment + STEP,
                "min_replicas": math.ceil(required * 1.1),
                "required_replicas": required,
                "rung": rung,
                "reason": reason.model_dump_json(),
            }
        )
    return conform(pl.DataFrame(rows), FLOORS)


def accuracy_of(workload_class: str) -> pl.DataFrame:
    rows = [
        {
            "workload_class": workload_class,
            "metric": metric,
            "horizon": horizon,
            "model": model,
            "first_step": NOW - timedelta(days=7),
            "last_step": NOW,
            "steps": 2016,
            "wape": wape * grow,
            "mase": 0.8 if model == "published" else None,
            "pinball": 210.5 if model == "published" else None,
            "calibration": 0.94 if model == "published" else None,
            "bias": -0.012,
        }
        for metric in METRICS
        for horizon, grow in (("24h", 1.8), ("lead", 1.0), ("6h", 1.4))
        for model, wape in (("published", 0.061), ("last_value", 0.094), ("seasonal_naive", 0.083))
    ]
    return conform(pl.DataFrame(rows), ACCURACY)


def scores_of(workload_class: str) -> pl.DataFrame:
    candidates = (("last_value", 340.0), ("mstl_ets", 201.0), ("seasonal_naive", 260.0), ("auto_arima", None))
    rows = [
        {
            "workload_class": workload_class,
            "metric": metric,
            "horizon": "lead",
            "cutoff": NOW - STEP,
            "model": model,
            "chosen": model == "mstl_ets",
            "weight": float(model == "mstl_ets"),
            "origins": 12,
            "pinball": pinball,
            "wape": None if pinball is None else pinball / 3000,
            "bias": None if pinball is None else 0.004,
            "seconds": 1.25,
            "error": "did not converge" if pinball is None else None,
        }
        for metric in METRICS
        for model, pinball in candidates
    ]
    return conform(pl.DataFrame(rows), SCORES)


def fits_of(workload_class: str) -> pl.DataFrame:
    rows = [
        {
            "workload_class": workload_class,
            "metric": metric,
            "horizon": "lead",
            "cutoff": NOW - STEP,
            "model": "mstl_ets",
            "reason": "lowest pinball loss of 4 candidates.",
            "parameters": "{}",
            "margins": "{}",
        }
        for metric in METRICS
    ]
    return conform(pl.DataFrame(rows), FITS)


def made_publication(*, valid_until: datetime) -> PublicationRecord:
    pools = {"chat-70b": {"gate": "untested"}, "batch-8b": {"gate": "closed"}}
    return PublicationRecord(
        version=42,
        run_id="run-1",
        issued_at=NOW - STEP,
        valid_until=valid_until,
        mode="advisory",
        content_hash="sha256:" + "0" * 64,
        schedule=json.dumps({"pools": pools}),
    )


def findings() -> pl.DataFrame:
    gap = {"kind": "gap", "workload_class": "", "metric": "", "start": NOW - timedelta(hours=30), "severity": "info"}
    jump = {
        "kind": "unit_jump",
        "workload_class": "agent",
        "metric": "tokens_in",
        "start": NOW - timedelta(hours=8),
        "severity": "warning",
    }
    jumped = json.dumps({"factor": 1003.0, "tokens_per_s": 9e5, "usual_tokens_per_s": 900.0, "came_back": "yes"})
    rows = [
        gap | {"end": NOW - timedelta(hours=26), "masked": False, "evidence": '{"steps_missing": 48}'},
        jump | {"end": NOW - 5 * STEP, "masked": True, "evidence": jumped},
    ]
    return conform(pl.DataFrame(rows).with_columns(pool=pl.lit("")), FINDINGS)


def drift() -> pl.DataFrame:
    """Of the agent: tokens in newer than its fit, which is a step old, tokens out older."""
    found = {"workload_class": "agent", "value": 0.8, "reference": 0.95, "hours": 9.0}
    coverage = {"metric": "tokens_in", "kind": "coverage_lost", "evidence": "80 % of 95 % over 9h"}
    level = {"metric": "tokens_out", "kind": "level_shifted", "evidence": "400 tokens/s against 100, over 9h"}
    rows = [
        found | coverage | {"as_of": NOW, "cutoff": NOW},
        found | level | {"as_of": NOW - 4 * STEP, "cutoff": NOW - 5 * STEP},
    ]
    return conform(pl.DataFrame(rows), DRIFT)


@pytest.fixture(scope="session")
def config() -> Config:
    return parse_config(CONFIG, file="made.yaml", environment={})


@pytest.fixture(scope="session")
def site_data(config: Config) -> SiteData:
    start, cutoff = NOW - timedelta(days=7), NOW - STEP
    demand = pl.concat([demand_of(name, start=start, end=NOW) for name in CLASSES])
    gap_start, gap_end = NOW - timedelta(hours=30), NOW - timedelta(hours=26)
    demand = demand.filter(~pl.col("step_start").is_between(gap_start, gap_end))
    rejects = pl.DataFrame(
        {
            "source": ["prod"] * 3,
            "file": ["trace.csv.gz"] * 3,
            "row_number": [7, 4, 9],
            "reason": ["negative tokens", "negative tokens", "unparsable time"],
            "raw": ["a,-1", "b,-2", "c,yesterday"],
        }
    )
    return SiteData(
        config=config,
        now=NOW,
        demand=demand,
        forecasts=pl.concat(
            [forecast_of(name, metric, cutoff=cutoff, steps=576) for name in CLASSES for metric in METRICS]
        ),
        fits=pl.concat([fits_of(name) for name in CLASSES]),
        scores=pl.concat([scores_of(name) for name in CLASSES]),
        drift=drift(),
        floors=pl.concat(
            [
                floors_of("chat-70b", ("agent", "chat"), start=cutoff, steps=576),
                floors_of("batch-8b", ("nightly-batch",), start=cutoff, steps=576, rung="past_weeks"),
            ]
        ),
        publication=made_publication(valid_until=NOW + timedelta(days=36500)),
        accuracy=pl.concat([accuracy_of(name) for name in CLASSES]),
        rejects=count_rejects(conform(rejects, REJECTS)),
        findings=findings(),
    )


@pytest.fixture(scope="session")
def costs() -> pl.DataFrame:
    rows = [
        ("chat-70b", "chat", date(2026, 11, 30), 12.0, 48.0, 432_000.0),
        ("chat-70b", "agent", date(2026, 11, 30), 6.0, 24.0, None),
        ("batch-8b", "nightly-batch", date(2026, 11, 30), 3.5, None, 1e6),
    ]
    return pl.DataFrame(rows, schema=dict(COSTS), orient="row")


@pytest.fixture(scope="session")
def empty_data(site_data: SiteData) -> SiteData:
    """What the site has on its first day: a configuration and nothing else."""
    frames = ("demand", "forecasts", "fits", "scores", "drift", "floors", "accuracy", "rejects", "findings")
    cleared = {name: getattr(site_data, name).clear() for name in frames}
    return dataclasses.replace(site_data, publication=None, **cleared)


@pytest.fixture(scope="session")
def renamed(site_data: SiteData) -> Callable[[str], SiteData]:
    """The same fleet, with one class called otherwise in every frame, so that the configuration does not know it."""

    def rename(name: str) -> SiteData:
        frames = {
            key: getattr(site_data, key).with_columns(pl.col("workload_class").replace("agent", name))
            for key in ("demand", "forecasts", "fits", "scores", "drift", "accuracy", "findings")
        }
        return dataclasses.replace(site_data, **frames)

    return rename
