"""How right the stored forecasts were."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from itertools import product
from statistics import median

from floorcast.columns import Metric
from forecasting.evaluation import PUBLISHED
from forecasting.evaluation import evaluate as evaluate_forecasts
from pipelines.project import Project
from pipelines.publishers.accuracy import write_accuracy_file
from pipelines.stages.common import HISTORY, StageResult, read_series, run_id
from store.accuracy import write_accuracy
from store.connection import open_store
from store.forecasts import forecasts_on_changed_data, read_forecasts

TRAILING = timedelta(days=14)


class EvaluateResult(StageResult):
    """`lead_wape` is of the published medians over the lead time, by class and metric. `judged_on_changed_data` counts
    the judged steps whose forecast was made from data that changed since."""

    judged_steps: int
    judged_on_changed_data: int = 0
    lead_wape: dict[str, float]

    @property
    def summary(self) -> str:
        if not self.judged_steps:
            return "no forecast has met its actuals yet"
        middle = f"; WAPE within the lead window {median(self.lead_wape.values()):.1%}, the median of its series"
        changed = f", {self.judged_on_changed_data:,} of them made from data that changed since"
        return (
            f"{self.judged_steps:,} forecast steps judged{changed if self.judged_on_changed_data else ''}"
            f"{middle if self.lead_wape else ''}"
        )


def evaluate(project: Project, now: datetime) -> EvaluateResult:
    """Judge every forecast of the last two weeks whose step has been observed since."""
    config, as_of = project.config, project.as_of(now)
    series, _ = read_series(project, as_of=as_of)
    with open_store(project.store_path) as store:
        forecasts = read_forecasts(store, start=as_of - TRAILING, end=as_of)
        # The oldest cutoff is the horizon and a lead window, which is shorter, before the first step judged.
        oldest = as_of - TRAILING - 2 * config.horizon
        marked = forecasts_on_changed_data(store, at=as_of, look_back=HISTORY, since=oldest)
    judge = partial(
        evaluate_forecasts,
        series=series,
        lead={name: config.class_lead_steps(name) * config.step for name in config.classes},
        quantile={key: config.pools[config.pool_of(*key)].margin.quantile for key in product(config.classes, Metric)},
    )
    accuracy = judge(forecasts)
    on_changed = judge(forecasts.join(marked, on=["workload_class", "metric", "cutoff"], how="semi"))
    with open_store(project.store_path) as store:
        write_accuracy(store, run_id("evaluate", as_of), as_of, accuracy)
    published = accuracy.filter(model=PUBLISHED)
    write_accuracy_file(project.output, as_of, published)
    at_lead = published.filter(horizon="lead").drop_nulls("wape")
    return EvaluateResult(
        judged_steps=int(published["steps"].sum()),
        judged_on_changed_data=int(on_changed.filter(model=PUBLISHED)["steps"].sum()),
        lead_wape={f"{row['workload_class']} {row['metric']}": row["wape"] for row in at_lead.to_dicts()},
    )
