"""How right the stored forecasts were."""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

from forecasting.evaluation import PUBLISHED
from forecasting.evaluation import evaluate as evaluate_forecasts
from pipelines.project import Project
from pipelines.stages.common import StageResult, read_series, run_id
from store.accuracy import write_accuracy
from store.connection import open_store
from store.forecasts import read_forecasts

TRAILING = timedelta(days=14)


class EvaluateResult(StageResult):
    """`lead_wape` is of the published medians over the lead time, by class and metric."""

    judged_steps: int
    lead_wape: dict[str, float]

    @property
    def summary(self) -> str:
        if not self.judged_steps:
            return "no forecast has met its actuals yet"
        middle = f"; WAPE within the lead window {median(self.lead_wape.values()):.1%}, the median of its series"
        return f"{self.judged_steps:,} forecast steps judged{middle if self.lead_wape else ''}"


def evaluate(project: Project, now: datetime) -> EvaluateResult:
    """Judge every forecast of the last two weeks whose step has been observed since."""
    config, as_of = project.config, project.as_of(now)
    series, _ = read_series(project, as_of=as_of)
    with open_store(project.store_path) as store:
        forecasts = read_forecasts(store, start=as_of - TRAILING, end=as_of)
    accuracy = evaluate_forecasts(
        forecasts,
        series,
        lead={name: config.lead_steps(spec.pools[0]) * config.step for name, spec in config.classes.items()},
        quantile={name: config.pool_of(name).margin.quantile for name in config.classes},
    )
    with open_store(project.store_path) as store:
        write_accuracy(store, run_id("evaluate", as_of), as_of, accuracy)
    published = accuracy.filter(model=PUBLISHED)
    at_lead = published.filter(horizon="lead").drop_nulls("wape")
    return EvaluateResult(
        judged_steps=int(published["steps"].sum()),
        lead_wape={f"{row['workload_class']} {row['metric']}": row["wape"] for row in at_lead.to_dicts()},
    )
