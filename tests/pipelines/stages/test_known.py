"""Events, siblings and renamed classes through the stages, on a real store."""

from __future__ import annotations

from datetime import timedelta

import duckdb
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from floorcast.columns import QUANTILE_COLUMNS, Metric
from floorcast.event import Window
from floorcast.types import Reason
from pipelines.cli.main import app
from pipelines.stages.common import HISTORY, read_series, read_stored
from pipelines.stages.known import apply_known
from pipelines.stages.runner import CYCLE, run_stage
from store.connection import open_store
from store.demand import read_demand, upsert_demand
from store.fits import read_fits
from store.floors import read_floors
from store.forecasts import read_forecast

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def with_events(reconfigure, project, text):
    return reconfigure(project, "pools:\n  chat-70b", f"{text}\npools:\n  chat-70b")


def event(start, end, **more):
    effect = ", ".join(f"{key}: {value}" for key, value in more.items())
    return f"events: [{{name: launch-day, start: '{start.isoformat()}', end: '{end.isoformat()}', {effect}}}]"


def quantiles(project, now, **only):
    with open_store(project.store_path) as store:
        return read_forecast(store, at=now).filter(**only).sort("workload_class", "metric", "step_start")


def test_a_launch_raises_the_forecasts_and_floors_inside_it_and_explain_names_it(published, live, now, reconfigure):
    before = quantiles(published, now)
    with open_store(published.store_path) as store:
        floors = read_floors(store, f"plan-{now:%Y%m%dT%H%M%SZ}")
    text = event(now + 3 * HOUR, now + 6 * HOUR, multiply=1.5, classes="[chat, agent]")
    project = with_events(reconfigure, published, text)
    live(project, now, "forecast", "plan", "publish")
    after = quantiles(project, now)
    inside = pl.col("step_start").is_between(now + 3 * HOUR, now + 5 * HOUR) & (pl.col("workload_class") != "code")
    np.testing.assert_allclose(
        after.filter(inside).select(QUANTILE_COLUMNS), before.filter(inside).select(QUANTILE_COLUMNS).to_numpy() * 1.5
    )
    assert after.filter(~inside).equals(before.filter(~inside))
    assert after.filter(inside)["model"].str.ends_with(", x1.5 launch-day").all()
    with open_store(project.store_path) as store:
        raised = read_floors(store, f"plan-{now:%Y%m%dT%H%M%SZ}")
    change = (raised["min_replicas"] - floors["min_replicas"]).to_numpy()
    assert change.max() > 0
    assert change[(raised["pool"] == "code-8b").to_numpy()].tolist() == [0] * 12
    shown = CliRunner().invoke(
        app, ["explain", "chat-70b", "--at", f"{now + 4 * HOUR:%Y-%m-%dT%H:%M}", "--config", str(project.file)]
    )
    assert "x1.5 launch-day" in shown.output


def test_a_past_launch_that_was_told_teaches_nothing(published, now, reconfigure):
    """Demand was thrice as high for half a day; told so, models see what they would have seen without it."""
    start, end = now - 30 * HOUR, now - 18 * HOUR
    ordinary, _ = read_series(published, as_of=now)
    with open_store(published.store_path) as store:
        rows = read_demand(store, start=start, end=end, classes=["chat"])
        upsert_demand(store, rows.with_columns(pl.col("tokens_in", "tokens_out", "^peak.*$") * 3))
    project = with_events(reconfigure, published, event(start, end, multiply=3))
    raised, _ = read_series(project, as_of=now)
    told = apply_known(project, raised, as_of=now).series
    for metric in Metric:
        values = ordinary["chat", metric].values
        np.testing.assert_allclose(told["chat", metric].values, values)
        assert raised["chat", metric].values[-24] == pytest.approx(3 * values[-24])


def test_a_new_class_is_forecast_like_its_sibling_and_says_so(published, live, now, reconfigure):
    added = "  newchat: {pools: [chat-70b], like: chat, scale: 0.2}\n  code:"
    project = reconfigure(published, "  code:", added)
    run_stage("fit", CYCLE["fit"], project, now)
    done = live(project, now, "forecast", "plan", "publish")
    assert done["forecast"].result.failed == {}
    chat, new = (quantiles(project, now, workload_class=name) for name in ("chat", "newchat"))
    assert new["model"].str.contains(", like chat x0.2", literal=True).all()
    np.testing.assert_allclose(new["q50"], chat["q50"] * 0.2, rtol=0.01)
    np.testing.assert_allclose(new["q95"] - new["q50"], (chat["q95"] - chat["q50"]) * 0.3, rtol=0.02)
    with open_store(project.store_path) as store:
        reasons = read_fits(store, at=now).filter(workload_class="newchat")["reason"]
    assert reasons.str.ends_with("; history like chat x0.2").all()


def test_a_renamed_class_goes_on_with_what_was_stored_under_its_old_name(published, live, now, reconfigure):
    before = quantiles(published, now, workload_class="code")
    renamed = "  coder: {kind: code_generation, pools: [code-8b], renamed_from: code}"
    project = reconfigure(published, "  code: {kind: code_generation, pools: [code-8b]}", renamed)
    run_stage("fit", CYCLE["fit"], project, now)
    live(project, now, "forecast", "plan", "publish")
    after = quantiles(project, now, workload_class="coder")
    np.testing.assert_allclose(after.select(QUANTILE_COLUMNS), before.select(QUANTILE_COLUMNS))
    own = read_stored(project, [Window(now - DAY, now)], classes=["coder"])
    assert own.height == 24
    with open_store(project.store_path) as store:
        upsert_demand(store, own.with_columns(workload_class=pl.lit("coder"), tokens_in=pl.lit(1.0)).tail(4))
    joined = read_stored(project, [Window(now - DAY, now)], classes=["coder"])
    assert joined.height == 24, "the old name's rows end where the new one's begin"
    assert joined["tokens_in"].tail(4).to_list() == [1.0] * 4
    series, _ = read_series(project, as_of=now)
    assert {name for name, _ in series} == {"agent", "chat", "coder"}


@pytest.mark.parametrize("known", [1, 2])
def test_a_yearly_factor_is_learned_from_what_was_long_before_the_history_of_models(published, now, reconfigure, known):
    """Twice the usual a year ago, and again two years ago if that was stored; ordinary weeks around both."""
    starts = [now.replace(year=now.year - back) + 2 * HOUR for back in (2, 1)]
    usual = read_stored(published, [Window(now - HOUR, now)], classes=["chat"])
    for start in starts[2 - known :]:
        times = [start + hour * HOUR for hour in range(-35 * 24, 35 * 24)]
        rows = pl.concat([usual] * len(times)).with_columns(step_start=pl.Series(times), tokens_in=pl.lit(3.6e6))
        during = pl.col("step_start").is_between(start, start + 5 * HOUR)
        with open_store(published.store_path) as store:
            upsert_demand(store, rows.with_columns(tokens_in=pl.when(during).then(7.2e6).otherwise("tokens_in")))
    assert starts[-1] < now - HISTORY
    text = event(starts[0], starts[0] + 6 * HOUR, learn="true", repeat="yearly", classes="[chat]")
    project = with_events(reconfigure, published, text)
    series, _ = read_series(project, as_of=now)
    found = apply_known(project, series, as_of=now)
    (effect,) = found.effects["chat", Metric.TOKENS_IN]
    assert effect.windows[-1].start == now + 2 * HOUR
    if known == 2:
        assert effect.multiply == pytest.approx(2)
    else:
        assert effect.label == "launch-day: 1 of 2 past times known"
    assert found.effects["code", Metric.TOKENS_IN] == ()


def test_without_anything_known_series_are_as_they_were(published, now):
    series, _ = read_series(published, as_of=now)
    found = apply_known(published, series, as_of=now)
    assert found.series == series
    assert found.labels == {}
    assert not any(found.effects.values())


def test_maintenance_brings_forecasts_to_zero_while_it_lasts_and_not_after(published, live, now, reconfigure):
    """No demand for four hours and two more to come: the zeros observed are not carried past its end."""
    before = quantiles(published, now, workload_class="chat")
    with open_store(published.store_path) as store:
        rows = read_demand(store, start=now - 4 * HOUR, end=now, classes=["chat"])
        upsert_demand(store, rows.with_columns(pl.col("tokens_in", "tokens_out", "^peak.*$") * 0))
    text = event(now - 4 * HOUR, now + 2 * HOUR, multiply=0, classes="[chat]")
    project = with_events(reconfigure, published, text)
    assert live(project, now, "forecast", "plan", "publish")["forecast"].result.failed == {}
    after = quantiles(project, now, workload_class="chat")
    inside = pl.col("step_start") < now + 2 * HOUR
    assert after.filter(inside).select(QUANTILE_COLUMNS).to_numpy().max() == 0
    assert after.filter(inside)["model"].str.ends_with(", x0 launch-day").all()
    ratio = (after.filter(~inside)["q50"] / before.filter(~inside)["q50"]).to_numpy()
    assert ratio.min() > 0.3


def reasons(project, now, pool):
    with open_store(project.store_path) as store:
        floors = read_floors(store, f"plan-{now:%Y%m%dT%H%M%SZ}").filter(pool=pool).sort("window_start")
    return [Reason.model_validate_json(text) for text in floors["reason"]]


def test_without_forecasts_past_weeks_are_taken_without_events_and_changed_by_those_to_come(
    published, live, now, reconfigure
):
    """A week ago thrice as much, told so; from three hours on half as much again for three hours. Floors
    cover three steps of an hour, and demand rises."""
    with duckdb.connect(str(published.store_path)) as store:
        store.execute("DELETE FROM forecasts")
    live(published, now, "plan")
    before = [reason.tokens_in_per_s for reason in reasons(published, now, "code-8b")]
    start, end = now - 7 * DAY, now - 7 * DAY + 6 * HOUR
    with open_store(published.store_path) as store:
        rows = read_demand(store, start=start, end=end, classes=["code"])
        upsert_demand(store, rows.with_columns(pl.col("tokens_in", "tokens_out", "^peak.*$") * 3))
    live(published, now, "plan")
    assert [reason.tokens_in_per_s for reason in reasons(published, now, "code-8b")] != before
    past, coming = (
        event(*when, multiply=factor).removeprefix("events: [").removesuffix("]")
        for when, factor in (((start, end), 3), ((now + 3 * HOUR, now + 6 * HOUR), 1.5))
    )
    live(with_events(reconfigure, published, f"events: [{past}, {coming}]"), now, "plan")
    after = reasons(published, now, "code-8b")
    ratios = np.array([reason.tokens_in_per_s for reason in after]) / before
    np.testing.assert_allclose(ratios[[0, 1, 2, 3, 6, 7, 8, 9]], [1, 1.5, 1.5, 1.5, 1, 1, 1, 1], rtol=1e-4)
    assert after[3].classes["code"].model_in.endswith("_max, x1.5 launch-day")
    assert after[8].classes["code"].model_in.endswith("_max")


def test_a_floor_for_at_least_so_much_is_for_that_and_not_for_the_busiest_minute_of_it(
    published, live, now, reconfigure
):
    text = event(now, now + 9 * HOUR, at_least="{tokens_in_per_s: 1000000}", classes="[code]")
    live(with_events(reconfigure, published, text), now, "forecast", "plan")
    reason = reasons(published, now, "code-8b")[2]
    assert reason.peak_in > 1
    assert reason.tokens_in_per_s == pytest.approx(1_000_000)
