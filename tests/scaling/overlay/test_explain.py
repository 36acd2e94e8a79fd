"""A decision lists every trigger with its value, target and vote, and every rule that changed the number."""

from __future__ import annotations

from scaling.overlay.explain import Vote, explain

SIGNALS = {
    "tokens_in_per_s": 5_600,
    "tokens_out_per_s": 100,
    "waiting_requests": 20,
    "waiting_tokens_in": 3_000,
    "kv_cache_usage": 0.92,
    "ready": 10,
    "starting": 2,
    "floor": 6,
    "ceiling": 11,
}


def test_every_enabled_trigger_is_listed_and_the_rules_lead_from_current_to_desired(settings, play):
    """10 x 0.92 / 0.8 = 11.5: KV cache asks for 12, the ceiling is 11."""
    lane = settings(targets={"ttft": "500ms"})
    (decision,) = play(lane, [(0.0, SIGNALS | {"requested": 10})])
    said = explain(decision, lane, 0)
    assert [(vote.trigger, str(vote.vote)) for vote in said.votes] == [
        ("token_rate", "in"),
        ("backlog", "in"),
        ("waiting", "in"),
        ("kv_cache", "out"),
        ("ttft", "absent"),
    ]
    assert said.rules == (("triggers", 10, 12), ("ceiling", 12, 11))
    assert (said.current, said.desired, said.floor, said.ceiling) == (10, 11, 6, 11)
    assert said.lines() == [
        "11 replicas, 10 until now",
        "  token_rate         56% of 70%              9 replicas    in",
        "  backlog            56% of 70%              9 replicas    in",
        "  waiting            2 of 10 per replica     3 replicas    in",
        "  kv_cache           92% of 80%              12 replicas   out",
        "  ttft               no signal yet",
        "  triggers: 10 becomes 12",
        "  ceiling: 12 becomes 11",
        "  bounds: floor 6, ceiling 11",
        "  fleet: 10 ready, 2 starting",
    ]


def test_what_holds_is_named(settings, play):
    lane = settings()
    lost = {name: value for name, value in SIGNALS.items() if name != "kv_cache_usage"}
    *_, decision = play(lane, [(0.0, SIGNALS), (15.0, lost)])
    said = explain(decision, lane, 0)
    assert {vote.trigger: vote.vote for vote in said.votes}["kv_cache"] is Vote.STALE
    assert said.stale == ("kv_cache_usage",)
    assert "  not fresh: kv_cache_usage; nothing is let go until it is" in said.lines()


def test_a_dead_man_is_told(settings, play):
    lane = settings(safe_replicas=20)
    *_, decision = play(lane, [(0.0, SIGNALS), (600.0, {})])
    said = explain(decision, lane, 0)
    assert said.alert
    assert ("dead man: no signal, safe_replicas", 11, 20) in said.rules
    assert said.lines()[-1] == "  alert: no signal at all for the dead-man interval"


def test_a_queue_that_is_not_believed_is_told(settings, play):
    lane = settings(stuck_after="1m")
    idle = {"tokens_in_per_s": 0, "tokens_out_per_s": 0, "waiting_requests": 500, "ready": 5}
    *_, decision = play(lane, [(15.0 * i, idle) for i in range(6)])
    votes = {vote.trigger: vote for vote in explain(decision, lane, 0).votes}
    assert votes["waiting"].stuck
    assert not votes["token_rate"].stuck
    assert "its queue does not move and is not believed" in str(votes["waiting"])


def test_rules_explain_every_decision_from_current_to_desired(settings, play):
    lane = settings(also=["lookahead"], panic={})
    ticks = [(15.0 * i, SIGNALS | {"tokens_in_per_s": 5_000 * (1 + i % 7), "floor": i % 20}) for i in range(80)]
    for decision in play(lane, ticks):
        said = explain(decision, lane, 0)
        numbers = [said.current, *(after for _, _, after in said.rules)]
        assert [before for _, before, _ in said.rules] == numbers[:-1]
        assert numbers[-1] == said.desired
