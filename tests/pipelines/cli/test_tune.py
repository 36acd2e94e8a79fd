"""`floorcast tune` over a real store: stored, heeded, applied, explained; and what a failure leaves."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from itertools import pairwise

import polars as pl
import pytest

from floorcast.tuning import Expected, Interval, TunedSettings, Tuning
from pipelines.publishers.schedule import LATEST, read_schedule
from pipelines.stages.runner import CYCLE, run_stage
from pipelines.stages.tune import tune
from pipelines.stages.tuned import gate_of, settings_in_force, tunings_of, with_tunings
from scaling.recompute import recompute
from store.connection import open_store
from store.tunings import write_tunings

HOUR = timedelta(hours=1)
APPLIED = ("    fallback_replicas: 30", "    fallback_replicas: 30\n    tune: {apply: true}")
WITH_FLOORS = TunedSettings(
    quantile=0.9,
    minimum_margin=0.25,
    target_utilization=0.6,
    policy="lookahead",
    scale_in_window_s=300,
    lookahead_quantile=0.8,
)
ALONE = WITH_FLOORS.model_copy(update={"quantile": None, "target_utilization": 0.5})


def tuned(at, gate):
    def expected(settings, multiple):
        one = Interval(value=multiple, low=multiple, high=multiple)
        share = Interval(value=0.992, low=0.99, high=0.995)
        return Expected(settings=settings, gpu_hours_per_day=one, on_time=share, over_clairvoyant=one)

    return Tuning(
        pool="chat-70b",
        as_of=at,
        days=7,
        promise=0.99,
        gate=gate,
        why="as it was found",
        floors=expected(WITH_FLOORS, 1.21),
        overlay_alone=expected(ALONE, 1.48),
        now=expected(WITH_FLOORS, 1.3),
    )


@pytest.fixture
def store_tuning():
    def store_one(project, at, gate):
        one = tuned(at, gate)
        row = {name: getattr(one, name) for name in ("pool", "as_of", "gate", "why")}
        row |= {"settings": one.settings.model_dump_json(), "result": one.model_dump_json()}
        with open_store(project.store_path) as store:
            write_tunings(store, "tune-by-hand", pl.DataFrame([row]))
            return tunings_of(store, at=at)["chat-70b"]

    return store_one


def test_a_closed_gate_publishes_plain_minimums_gently(published, live, store_tuning, reconfigure, main, now):
    published = reconfigure(published, *APPLIED)
    before = read_schedule(published.output / LATEST).pools["chat-70b"]
    assert before.gate == "untested"
    assert before.proof is None
    store_tuning(published, now, "closed")
    done = live(published, now + HOUR, "ingest", "forecast", "plan", "publish")
    assert "chat-70b at its plain minimum, as floors do not pay there" in done["plan"].result.summary
    schedule = read_schedule(published.output / LATEST)
    pool, other = schedule.pools["chat-70b"], schedule.pools["code-8b"]
    floors = [window.min_replicas for window in pool.windows]
    was = next(window.min_replicas for window in before.windows if window.start <= now < window.end)
    assert (pool.gate, other.gate) == ("closed", "untested")
    # Down by a tenth, at least one, every hour, and never at once.
    steps = [was, *floors]
    assert all(after == was - max(was // 10, 1) for was, after in pairwise(steps))
    assert len(floors) == 12
    assert all(window.reason.adjustments[0].rule == "gate" for window in pool.windows)
    assert all(recompute(window.reason, pool.settings) == window.min_replicas for window in pool.windows)
    ran = main("explain", "chat-70b", "--now", f"{now + HOUR:%Y-%m-%dT%H:%M}", cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    assert " becomes 0: closed, as floors do not pay here; minimums are left" in ran.out
    assert (
        "  proof       last 7 days to 2026-11-16 at 99.2 % on time: floors 1.21, overlay alone 1.48 times the "
        "clairvoyant\n" in ran.out
    )
    ran = main("diff", "--json", cwd=published.base)
    causes = {pool["pool"]: pool["causes"] for pool in json.loads(ran.out)["pools"]}
    assert causes["chat-70b"]["gate"] < 0
    assert "gate" not in causes["code-8b"]


def test_a_gate_is_heeded_only_where_its_settings_are_taken(published, live, store_tuning, reconfigure, now):
    """It compares with the overlay at its tuned settings, which is not what runs without them."""
    found = store_tuning(published, now, "closed")
    live(published, now + HOUR, "ingest", "forecast", "plan", "publish")
    pool = read_schedule(published.output / LATEST).pools["chat-70b"]
    unheeded = reconfigure(published, APPLIED[0], f"{APPLIED[0]}\n    tune: {{apply: true, gate: false}}")
    configured = unheeded.config.pools["chat-70b"]
    assert (gate_of(configured, found), settings_in_force(configured, found)) == ("untested", WITH_FLOORS)
    assert pool.gate == "untested"
    assert pool.proof.why == "as it was found"
    assert all(move.rule != "gate" for window in pool.windows for move in window.reason.adjustments)


def test_tuned_settings_are_planned_with_where_asked(published, live, store_tuning, reconfigure, main, now):
    store_tuning(published, now, "open")
    project = reconfigure(published, *APPLIED)
    live(project, now + HOUR, "ingest", "fit", "forecast", "plan", "publish")
    pool = read_schedule(project.output / LATEST).pools["chat-70b"]
    settings = pool.settings
    assert (pool.gate, settings.margin.quantile, settings.margin.minimum) == ("open", 0.9, 0.25)
    assert settings.capacity.target_utilization == 0.6
    assert recompute(pool.windows[0].reason, settings) == pool.windows[0].min_replicas
    ran = main("explain", "chat-70b", "--now", f"{now + HOUR:%Y-%m-%dT%H:%M}", cwd=project.base)
    assert "  tuned       margins, shape, utilization and overlay chosen on data up to 2026-11-16\n" in ran.out
    assert "changed     settings" not in ran.out
    ran = main("diff", "--json", cwd=project.base)
    causes = {one["pool"]: one["causes"] for one in json.loads(ran.out)["pools"]}
    assert causes["chat-70b"]["capacity (tuned)"] > 0
    assert not any("tuned" in cause for cause in causes["code-8b"])


def test_whatif_starts_from_tuned_settings_and_takes_what_is_asked(
    published, live, store_tuning, reconfigure, main, now
):
    store_tuning(published, now, "open")
    project = reconfigure(published, *APPLIED)
    live(project, now + HOUR, "ingest", "fit", "forecast", "plan", "publish")
    schedule = read_schedule(project.output / LATEST)
    highest = max(window.min_replicas for window in schedule.pools["chat-70b"].windows)

    def chat(*asked):
        words = [word for one in asked for word in ("--set", f"pools.chat-70b.{one}")]
        ran = main("whatif", *words, "--json", cwd=project.base)
        assert ran.code == 0, ran.err
        found = json.loads(ran.out)["pools"]["chat-70b"]
        return found["before"]["most"], found["after"]["most"]

    assert chat("gpu.usd_per_gpu_hour=7") == (highest, highest)
    assert chat("margin.quantile=0.9", "margin.minimum=25%", "capacity.target_utilization=0.6") == (highest, highest)
    before, after = chat("capacity.target_utilization=0.9")
    assert before == highest
    assert after < highest
    before, after = chat("tune.apply=false")
    assert before == highest
    assert after != highest


def test_status_and_replay_go_by_what_was_tuned(published, store_tuning, reconfigure, main, now):
    store_tuning(published, now, "open")
    at = ("--now", f"{now:%Y-%m-%dT%H:%M}")
    replays = ("replay", "chat-70b", "--days", "1", "--json", *at)
    as_configured = json.loads(main(*replays, cwd=published.base).out)["pools"][0]
    assert "tuned on data" not in main("status", *at, cwd=published.base).out
    project = reconfigure(published, *APPLIED)
    ran = main("status", *at, cwd=project.base)
    assert (
        "settings of chat-70b: quantile 0.9 + 25 %, U 0.6, lookahead 0.8, in 5m, tuned on data up to 2026-11-16\n"
    ) in ran.out
    assert list(json.loads(main("status", "--json", *at, cwd=project.base).out)["tuned"]) == ["chat-70b"]
    assert json.loads(main(*replays, cwd=project.base).out)["pools"][0] != as_configured


def test_settings_of_before_their_time_are_not_used(published, store_tuning, reconfigure, now):
    store_tuning(published, now, "open")
    project = reconfigure(published, *APPLIED)
    assert with_tunings(project, now - HOUR).config == project.config
    assert with_tunings(project, now).config.pools["chat-70b"].capacity.target_utilization == 0.6


def test_a_pool_is_tuned_stored_and_told(published, main, now):
    """A week of hourly steps; whatever it finds, it says so, and a plan heeds it."""
    ran = main("tune", "code-8b", "--days", "6", "--now", f"{now:%Y-%m-%dT%H:%M}", cwd=published.base)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split("  ")[0] == "pool"
    assert "quantile 0.95 + 10 % of peaks, dwell 15m, down 10 %, U 0.75, hybrid, in 10m" in lines[1]
    with open_store(published.store_path) as store:
        found = tunings_of(store, at=now)["code-8b"]
    assert f"code-8b: gate {found.gate}: {found.why}" in lines
    assert "  judged on 3 days to 2026-11-16 09:00 UTC, 99 % on time promised" in lines
    assert found.floors.settings.quantile is not None
    assert found.overlay_alone.settings.quantile is None
    assert found.overlay_alone.gpu_hours_per_day.value > 0


def test_a_failed_tuning_keeps_the_last(published, store_tuning, live, main, now):
    kept = store_tuning(published, now - timedelta(days=7), "closed")
    early = now - timedelta(days=5)
    ran = main("tune", "chat-70b", "--now", f"{early:%Y-%m-%dT%H:%M}", "--json", cwd=published.base)
    assert ran.code == 3
    assert "5 days of demand can be replayed, after 2 to learn from; 6 are needed" in ran.err
    with open_store(published.store_path) as store:
        assert tunings_of(store, at=now) == {"chat-70b": kept}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(("tune", "nothing"), 7, "name one of chat-70b, code-8b"), (("tune", "--days", "2"), 2, "--days")],
)
def test_what_cannot_be_tuned_is_told(main, published, words, code, said):
    ran = main(*words, cwd=published.base)
    assert ran.code == code
    assert said in ran.err


def test_a_cycle_tunes_when_it_is_due(published, store_tuning, reconfigure, now):
    """Tuned three days ago, to be tuned every three days: due, and it has five days, too few. A day earlier it was
    not."""
    assert run_stage("tune", CYCLE["tune"], published, now).result.summary == "nothing due"
    early = now - timedelta(days=5)
    project = reconfigure(published, "    fallback_replicas: 30", "    fallback_replicas: 30\n    tune: {every: 3d}")
    store_tuning(project, early - timedelta(days=3), "open")
    assert run_stage("tune", CYCLE["tune"], project, early - timedelta(days=1)).result.summary == "nothing due"
    assert list(run_stage("tune", CYCLE["tune"], project, early).result.failed) == ["chat-70b"]


def test_classes_planned_by_deadline_are_left_alone(published, reconfigure, now):
    project = reconfigure(
        published, "kind: agent, pools: [chat-70b]", "kind: agent, pools: [chat-70b], slo: {max_wait: 6h}"
    )
    result = run_stage("tune", partial(tune, only=("chat-70b",)), project, now).result
    assert result.failed == {"chat-70b": "agent may wait and is planned by its deadline, which is not replayed"}
