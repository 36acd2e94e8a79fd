"""The replay against closed formulas and against queues simulated request by request.

Two ways in which replicas limit a pool have a textbook queue each. Where the KV cache has room for one request a
replica, that is M/D/c: c servers, every request in flight for as long. Where throughput limits, all replicas together
are one fast server, M/G/1 at speed c: so the wait is that of M/M/c at c = 1, above it for more, and tends to it as the
load rises.
"""

from __future__ import annotations

import numpy as np
import pytest

from scaling.replay.replay import replay_paths
from scaling.replay.traffic import from_requests

SEED = 7


def arrivals(rng, rate, number):
    return np.cumsum(rng.exponential(1 / rate, number))


@pytest.fixture(scope="module")
def replayed(make_pool, make_traffic):
    """Mean wait in seconds of the tokens, and the result, with `servers` replicas all along."""

    def run(traffic, servers, conditions):
        ready = np.full((traffic.steps, 1), servers)
        none = np.zeros_like(ready)
        result = replay_paths(
            traffic, ("lane",), ready, pool=make_pool(), conditions=conditions, starting=none, draining=none
        )
        part = result.waits_of(0)[0]
        reached = np.isfinite(part.last_s) & (part.tokens > 0)
        mean = np.average((part.first_s + part.last_s)[reached] / 2, weights=part.tokens[reached])
        return mean, result

    return run


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 3.2), (10, 9.0)])
def test_the_exact_queue_agrees_with_both_formulas(exact_waits, erlang_c, deterministic_wait, servers, load):
    """150,000 requests, mean service 1 s. At 90 % load waits are correlated over about a hundred services, so that
    1,500 are independent: 5 % is two standard errors."""
    rng = np.random.default_rng(SEED)
    at = arrivals(rng, load, 150_000)
    exponential = exact_waits(at, rng.exponential(1.0, len(at)), servers).mean()
    deterministic = exact_waits(at, np.ones(len(at)), servers).mean()
    assert exponential == pytest.approx(erlang_c(servers, load) / (servers - load), rel=0.06)
    assert deterministic == pytest.approx(deterministic_wait(servers, load), rel=0.06)


def test_the_formula_for_deterministic_service_is_the_known_one_for_one_server(deterministic_wait):
    """M/D/1: rho / (2 (1 - rho)) service times; 0.8 / 0.4 = 2."""
    assert deterministic_wait(1, 0.8) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.8), (4, 3.4), (12, 10.8)])
def test_a_pool_limited_by_its_kv_cache_is_m_d_c(
    replayed, make_conditions, exact_waits, deterministic_wait, servers, load
):
    """Requests of 10 tokens in and 20 out hold 20 tokens of KV cache for 20 s; a replica has room for one. Bins of 1 s
    put a request up to 1 s late and keep it up to 1 s: 1 s of wait at most against the exact queue on the same
    requests. The formula is of all such requests, and these are few: their mean is within a fifth of it.
    """
    service_s, number, step_s = 20.0, 1500 * servers, 1.0
    rng = np.random.default_rng(SEED)
    at = arrivals(rng, load / service_s, number)
    steps = int(at[-1] / step_s) + 1
    traffic = from_requests(at, 10.0, 20.0, start=None, steps=steps, step_s=step_s, max_wait_s=10.0)
    # The throughput of 1,000 replicas is no limit. The KV cache of all together has room for `servers` requests.
    conditions = make_conditions(seconds_per_token=1.0, kv_tokens=20.0 * servers / 1000, tick_s=step_s)
    mean, _ = replayed(traffic, 1000, conditions)
    assert mean == pytest.approx(exact_waits(at, np.full(number, service_s), servers).mean(), abs=step_s)
    assert mean == pytest.approx(deterministic_wait(servers, load) * service_s, rel=0.2, abs=step_s)


@pytest.mark.parametrize("servers", [1, 8])
def test_a_pool_limited_by_its_throughput_is_one_fast_server(replayed, make_conditions, servers):
    """M/M/1 at speed c: rho / (c mu - lambda). With mu = 1/20, rho = 0.8 and one replica 0.8 / (0.05 - 0.04) = 80 s;
    with eight 10 s. Tokens are weighted, and a request's tokens wait from its first to its last: on average the work
    before it plus half of its own, weighted by size. The exact
    queue on the same requests is met within a bin, the formula within what so few requests tell.
    """
    rng = np.random.default_rng(SEED)
    size, load = 20.0, 0.8
    number = 2_500 * servers
    at = arrivals(rng, load * servers / size, number)
    sizes = rng.exponential(size, number)
    steps = int(at[-1]) + 200
    traffic = from_requests(at, sizes, sizes, start=None, steps=steps, step_s=1.0, max_wait_s=10.0)
    mean, _ = replayed(traffic, servers, make_conditions(tick_s=1.0))
    work_before = exact_one_server(at, sizes / servers)
    own = np.average(sizes / servers / 2, weights=sizes)
    assert mean == pytest.approx(np.average(work_before, weights=sizes) + own, abs=1.0)
    assert np.average(work_before, weights=sizes) == pytest.approx(load / (servers / size * (1 - load)), rel=0.3)


def exact_one_server(at, service):
    """Lindley: the wait of each is the work that those before it have left."""
    waited, left = [], 0.0
    for gap, need in zip(np.diff(at, prepend=0.0).tolist(), service.tolist(), strict=True):
        left = max(left - gap, 0.0)
        waited.append(left)
        left += need
    return np.array(waited)


def test_the_fluid_waits_longer_than_m_m_c_and_ever_less_so_under_load(erlang_c):
    """rho / (c mu - lambda) over Erlang C's: rho / C(c, c rho), from above towards 1 as rho tends to 1."""
    ratios = [rho / erlang_c(10, 10 * rho) for rho in (0.7, 0.8, 0.9, 0.95, 0.99)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(1.0, abs=0.05)
