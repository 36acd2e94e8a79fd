"""What goes wrong between floorcast and an API server, over a real socket."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.publishers.kubernetes import Kubernetes

META = ("resourceVersion", "generation", "managedFields")


@pytest.mark.parametrize("verb", ["get", "patch"])
@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_a_server_that_is_busy_once_is_asked_again(either, verb, code):
    key = either.make()
    either.fault("plain" if code == 429 else "status", verb=verb, code=code)
    outcome = either.publish(14)
    assert (outcome.did, outcome.after) == ("applied", 14)
    assert either.api.get(key)["spec"][either.minimum] == 14
    assert either.verbs() == {"get": ["get", "get", "patch"], "patch": ["get", "patch", "get", "patch"]}[verb]


def test_one_that_stays_so_is_given_up_and_the_last_floor_stays(either):
    key = either.make()
    either.publish(14)
    before = either.api.get(key)
    for _ in range(4):
        either.fault("status", verb="patch", code=503)
    outcome = either.publish(15)
    assert outcome.did == "failed"
    assert outcome.note == "503 the server is currently unable to handle the request; tried again next time"
    assert either.verbs()[2:] == ["get", "patch"] * 4
    assert either.api.get(key) == before


def test_retry_after_is_waited_for(cluster):
    cluster.make()
    cluster.fault("plain", verb="patch", code=429, retry_after=1)
    began = time.monotonic()
    assert cluster.publish(14).did == "applied"
    assert time.monotonic() - began >= 1


def test_one_that_asks_for_longer_than_there_is_is_left_alone(cluster):
    cluster.make()
    cluster.fault("plain", code=429, retry_after=3600)
    began = time.monotonic()
    outcome = cluster.publish(14)
    assert time.monotonic() - began < 60
    assert outcome.did == "failed"
    assert "it asked to be left alone for 3600 s" in outcome.note
    assert cluster.verbs() == ["get"]


def test_an_object_that_changes_all_the_time_is_given_up(cluster):
    """Each try reads it anew, and each time its status is written before ours arrives."""
    key = cluster.make()
    for beat in range(4):
        cluster.fault(
            "call",
            verb="patch",
            call=lambda beat=beat: cluster.api.edit(
                key, ("status", "lastActiveTime"), f"2026-11-30T09:00:0{beat}Z", manager="keda", subresource="status"
            ),
        )
    outcome = cluster.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("changed meanwhile: Operation cannot be fulfilled on scaledobjects.keda.sh")
    assert cluster.publish(14).did == "applied"


@pytest.mark.parametrize("what", ["drop", "lost", "cut"])
@pytest.mark.parametrize("verb", ["get", "patch"])
def test_a_connection_that_breaks_is_made_again_and_the_outcome_is_what_became_of_it(either, what, verb):
    """Lost or cut after a patch was done, the next reading finds it there: it was applied, once."""
    key = either.make()
    before = either.api.get(key)["spec"].get(either.minimum, 0)
    either.fault(what, verb=verb)
    outcome = either.publish(14)
    assert (outcome.did, outcome.before, outcome.after) == ("applied", before, 14)
    assert either.api.get(key)["spec"][either.minimum] == 14
    assert len(either.state.writes) == 1


def test_a_slow_answer_is_not_waited_for_and_the_late_request_undoes_nothing(cluster):
    """The held up 14 arrives after 20 was applied: its resourceVersion is that of an object that is gone."""
    key = cluster.make()
    cluster.fault("slow", verb="patch", seconds=4)
    cluster.timeout, cluster.deadline = "1s", "2s"
    assert cluster.publish(14).did in ("failed", "applied")
    cluster.timeout, cluster.deadline = "30s", "2m"
    assert cluster.publish(20).did == "applied"
    late = next(request for request in cluster.state.requests if request.verb == "patch")
    waited = time.monotonic() + 60
    while late.code is None and time.monotonic() < waited:
        time.sleep(0.05)
    assert late.code == 409
    assert cluster.api.get(key)["spec"]["minReplicaCount"] == 20


def test_pools_that_there_is_no_time_for_are_failed_and_not_tried(cluster):
    cluster.make()
    for _ in range(40):
        cluster.fault("slow", seconds=1.5)
    cluster.timeout, cluster.deadline = "1s", "1s"
    outcomes = cluster.publish(*[14] * 20, pools=("chat-70b",) * 20)
    assert {one.did for one in outcomes} == {"failed"}
    assert outcomes[0].note.startswith("no answer within 1 s")
    assert outcomes[-1].note == "not tried: the pools before it took the 1s that there are"


def test_what_is_no_api_server_is_told(cluster):
    cluster.make()
    for _ in range(4):
        cluster.fault("html")
    outcome = cluster.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("the answer is no ScaledObject: is a proxy in front of the API server?")


def test_a_server_that_is_down_is_told_and_found_again(either):
    key = either.make()
    either.wire.stop()
    outcome = either.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("cannot be reached: ")
    either.wire.start()
    assert either.publish(14).did == "applied"
    assert either.api.get(key)["spec"][either.minimum] == 14


def test_a_cluster_without_keda_is_told(cluster):
    cluster.make()
    cluster.state.keda_installed = False
    outcome = cluster.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("this cluster knows no scaledobjects.keda.sh/v1alpha1: install it, or use the other")
    assert cluster.verbs() == ["get"]


_FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["status", "plain", "drop", "lost", "cut", "html", "slow", "touch", "raise"]),
        st.sampled_from(["get", "patch"]),
    ),
    max_size=3,
)


@given(
    runs=st.lists(st.tuples(st.integers(0, 45), _FAULTS), min_size=1, max_size=4),
    kind=st.sampled_from(["scaled_object", "hpa"]),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_goes_wrong_the_minimum_is_what_was_wanted_last_and_nothing_else_is_touched(
    cluster, without, wanted, runs, kind
):
    """After a success it is that floor, whatever came late; after a failure that of the last success, or one wanted
    since, but for a hand that raised it. `touch` and `raise` are others at work between two requests."""
    cluster.object = kind
    cluster.state.objects.clear()
    cluster.state.faults.clear()
    cluster.state.writes.clear()
    cluster.allow()
    key = cluster.make()
    config = cluster.config()
    entry = config.publishers[0].model_copy(
        update={"timeout": timedelta(milliseconds=400), "deadline": timedelta(seconds=5)}
    )
    lowest = cluster.api.get(key)["spec"].get(cluster.minimum, 0)
    possible, raised = {lowest}, 0
    for floor, faults in runs:
        for what, verb in faults:
            if what in ("touch", "raise"):
                path = ("metadata", "labels", "team") if what == "touch" else ("spec", cluster.minimum)
                value = "other" if what == "touch" else 40
                raised |= what == "raise"
                cluster.fault("call", verb=verb, call=lambda path=path, value=value: cluster.api.edit(key, path, value))
            else:
                cluster.fault(what, verb=verb, code=429 if what == "plain" else 503, seconds=0.6)
        [outcome] = Kubernetes(entry, config).publish([wanted("chat-70b", floor)], apply=True, now=cluster.api_now)
        held = max(min(floor, 40), lowest)
        if outcome.did in ("applied", "unchanged"):
            possible = {held}
            assert outcome.after == held
        else:
            possible.add(held)
        minimum = cluster.api.get(key)["spec"].get(cluster.minimum, 0)
        assert minimum in possible or (raised and minimum == 40)
        assert minimum >= min(possible)
    ours = {("spec", cluster.minimum), *(("metadata", name) for name in META)}
    assert all(without(before, ours) == without(after, ours) for before, after in cluster.state.writes)


@pytest.mark.parametrize("verb", ["get", "patch"])
@pytest.mark.parametrize("done", [True, False])
def test_killed_within_a_request_it_leaves_the_old_minimum_or_the_new(either, without, tmp_path, verb, done):
    key = either.make()
    either.publish(14)
    before = either.api.get(key)
    config = tmp_path / "floorcast.yaml"
    config.write_text(either.config_text())
    program = Path(__file__).with_name("killed_publisher.py")
    process = subprocess.Popen([sys.executable, str(program), str(config), "15"])
    either.fault("call" if done else "drop", verb=verb, call=process.kill)
    assert process.wait(timeout=120) == -signal.SIGKILL
    waited = time.monotonic() + 60
    while either.state.requests[-1].code is None and done and time.monotonic() < waited:
        time.sleep(0.02)
    after = either.api.get(key)
    assert after["spec"][either.minimum] == (15 if verb == "patch" and done else 14)
    ours = {("spec", either.minimum), *(("metadata", name) for name in META)}
    assert without(after, ours) == without(before, ours)
    assert either.publish(16).did == "applied"
