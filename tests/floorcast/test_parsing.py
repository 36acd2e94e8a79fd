"""Configuration: every fault names the file, the line, the key, the remedy and, if that is safe, the value."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

GOOD: dict[str, Any] = {
    "step": "5m",
    "horizon": "48h",
    "sources": [
        {"name": "code", "kind": "trace", "format": "azure", "path": "${DATA}/code.csv", "class": "chat"},
        {"name": "more", "kind": "trace", "format": "mooncake", "path": "m.jsonl", "class": "chat",
         "start": "2026-11-01T00:00:00+08:00"},
    ],
    "pools": {
        "chat-70b": {
            "gpu": {"type": "H100", "per_replica": 2, "usd_per_gpu_hour": 3.99},
            "capacity": {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600, "target_utilization": "75%"},
            "startup": {"p90": "4m"},
            "bounds": {"min": 2, "max": 40},
        }
    },
    "classes": {"chat": {"kind": "chat", "pools": ["chat-70b"]}},
}  # fmt: skip


def parse(data: object, **environment: str) -> Config:
    text = data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False)
    return parse_config(text, file="floorcast.yaml", environment={"DATA": "/d", **environment})


def changed(*path: object, to: object) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    inner: Any = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return data


def test_a_whole_configuration_is_read_with_units_zones_and_variables() -> None:
    config = parse(GOOD)
    assert config.step == timedelta(minutes=5)
    assert config.pools["chat-70b"].capacity.target_utilization == 0.75
    assert config.sources[0].path == "/d/code.csv"
    assert config.sources[1].start == datetime(2026, 10, 31, 16, tzinfo=UTC)
    assert config.lead("chat-70b") == timedelta(minutes=9, seconds=30)
    assert config.classes_of("chat-70b") == ("chat",)


POOL = ("pools", "chat-70b")
FAULTS = [
    pytest.param(changed("horizn", to="48h"), "horizn: unknown key", "did you mean `horizon`?", id="unknown key"),
    pytest.param(changed(*POOL, "gpu", "per_replicas", to=2), "pools.chat-70b.gpu.per_replicas: unknown key",
                 "`per_replica`", id="unknown key deep inside"),
    pytest.param(changed("sources", 0, "clas", to="x"), "sources.0.clas: unknown key", "`class`", id="alias"),
    pytest.param(changed(*POOL, "startup", "p90", to=4), "startup.p90: '4' is not a duration", "as in 90s", id="unit"),
    pytest.param(changed(*POOL, "capacity", "decode_tokens_per_s", to=0), "decode_tokens_per_s", "greater than 0",
                 id="zero capacity"),
    pytest.param(changed(*POOL, "bounds", to={"min": 9, "max": 3}), "min 9 is above max 3", "raise max", id="bounds"),
    pytest.param(changed(*POOL, "fallback_replicas", to=99), "outside bounds 2 to 40", "move it", id="fallback"),
    pytest.param(changed(*POOL, "margin", to={"quantile": 0.3}), "margin.quantile", "larger", id="quantile"),
    pytest.param(changed("classes", "chat", "pools", to=["chat-7b"]), "pool chat-7b, which is not under `pools`",
                 "did you mean chat-70b?", id="unknown pool"),
    pytest.param(changed("classes", "chat", "kind", to="chatt"), "(value 'chatt')", "did you mean chat?", id="kind"),
    pytest.param(changed("classes", "chat", "kind", to="code"), "classes.chat.kind", "code_generation?", id="code"),
    pytest.param(changed(*POOL, "capacity", "target_utilization", to=75), "(value 75)", "did you mean 0.75, which is",
                 id="percent"),
    pytest.param(changed(*POOL, "capacity", "target_utilization", to=1.5), "(value 1.5)", "use a smaller", id="over"),
    pytest.param(changed(*POOL, "margin", to={"quantile": 95}), "margin.quantile", "did you mean 0.95", id="p95"),
    pytest.param(changed("zone", to="Europe/Munich"), "not an IANA", "name a city that the zone has", id="no zone"),
    pytest.param(changed("zone", to="Berlin"), "not an IANA", "did you mean Europe/Berlin?", id="city"),
    pytest.param(changed("classes", to={}), "classes: is empty", "give at least one", id="no class"),
    pytest.param(changed("zone", to="Europe/Belin"), "not an IANA time zone", "Europe/Berlin", id="zone"),
    pytest.param(changed("step", to="7m"), "divides a day", "use 1m, 5m", id="step"),
    pytest.param(changed("horizon", to="7m"), "whole number of steps", "48h", id="horizon"),
    pytest.param(changed(*POOL, "startup", "p90", to="49h"), "lead time of", "lengthen `horizon`", id="lead"),
    pytest.param(changed("sources", 1, "start", to=None), "needs `start`", "2026-11-01T00:00:00Z", id="start"),
    pytest.param(changed("sources", 0, "format", to="generic"), "needs `columns`", "time:", id="columns"),
    pytest.param(changed("sources", 0, "path", to="${NOWHERE}/x"), "NOWHERE is not set", "export NOWHERE", id="env"),
    pytest.param(changed("pools", "Chat 70B", to=GOOD["pools"]["chat-70b"]), "pools.Chat 70B", "lower-case", id="name"),
    pytest.param(changed("pools", "spare", to=GOOD["pools"]["chat-70b"]), "pool spare serves no class", "delete it",
                 id="pool without class"),
    pytest.param(changed(*POOL, "startup", "p90", to="99999999999999d"), "longer than ten", "message", id="long"),
    pytest.param(changed(*POOL, "capacity", "decode_tokens_per_s", to=float("inf")), "finite", "correct", id="inf"),
    pytest.param(changed(*POOL, "bounds", "max", to=10**20), "bounds.max", "smaller", id="absurd bounds"),
    pytest.param(changed(*POOL, "margin", to={"minimum": "abc%"}), "'abc%' is not a share", "10%", id="share"),
    pytest.param(changed("publication", to={"valid_for": "0s"}), "valid_for 0s ends before", "intervals", id="valid"),
    pytest.param(changed("publication", to={"valid_for": "1m", "interval": "1h"}), "1h later", "valid", id="interval"),
    pytest.param(changed("refit_every", to="0s"), "refit_every is 0", "one second", id="refit"),
    pytest.param(changed("compute", to={"scheduler": "dask:8786"}), "compute.scheduler: is not the address",
                 "tcp://dask-scheduler:8786", id="scheduler"),
    pytest.param("a: &a [*a]", "alias refers to itself", "write the value out", id="recursion"),
    pytest.param("pools: [", "not YAML", "indentation", id="not YAML"),
    pytest.param("", "empty", "floorcast init", id="empty"),
    pytest.param("step: 5m\nstep: 1m", "key `step` appears twice", "delete or rename", id="twice"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "what", "remedy"), FAULTS)
def test_a_fault_says_what_where_and_what_to_do(data: object, what: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data)
    assert what in str(caught.value)
    assert remedy in str(caught.value)
    assert "floorcast.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "remedy"),
    [
        (("overlay", "lookahead", "quantile"), "95%", "write 0.95"),
        (("overlay", "lookahead", "quantile"), "99.99999%", "write 0.9999999"),
        (("overlay", "also"), "lookahead", "write [lookahead]"),
        (("bounds", "max"), "30 replicas", "write 30"),
        (("bounds", "max"), "30.5%", "write a whole number, without a unit"),
        (("bounds", "max"), 30.5, "write a number without a fraction"),
        (("capacity", "prefill_tokens_per_s"), "3,000/s", "write 3000"),
        (("capacity", "prefill_tokens_per_s"), "1.1M", "write 1100000"),
        # Another unit, or what may be a decimal comma: not to be guessed.
        (("capacity", "prefill_tokens_per_s"), "3000/min", "write a number, without a unit"),
        (("capacity", "prefill_tokens_per_s"), "1,5", "write a number, without a unit"),
    ],
)
def test_a_value_of_the_wrong_type_has_the_remedy_that_it_shows(path, value, remedy) -> None:
    data = changed(*POOL, "overlay", to={"lookahead": {}})
    inner = data["pools"]["chat-70b"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ConfigError) as caught:
        parse(data)
    assert str(caught.value).endswith(f"(value {value!r})\n  remedy: {remedy}")
    assert "tuple" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        (changed(*POOL, "bounds", to={"min": 2, "maxx": 9}), "did you mean `max`?"),
        (changed("classes", "chat", "kind", to="words"), "correct it as the message says"),
        (
            changed(
                *POOL,
                "calendar",
                to=[{"name": "a", "days": ["monday"], "start": "8:00", "end": "9:00"} | {"minimum": 3}],
            ),
            "did you mean mon?",
        ),
    ],
)
def test_one_mistake_is_one_fault(data: object, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data)
    assert str(caught.value).count("remedy: ") == 1
    assert str(caught.value).endswith(remedy)


def test_a_key_that_is_missing_beside_an_unknown_one_is_told_too() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(changed(*POOL, "bounds", to={"max": 9, "elephant": 9}))
    assert "bounds.min: is missing" in str(caught.value)
    assert "bounds.elephant: unknown key" in str(caught.value)


def test_a_fault_between_keys_points_at_one_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(changed("classes", "chat", "pools", to=["chat-7b"]))
    text = yaml.safe_dump(changed("classes", "chat", "pools", to=["chat-7b"]), sort_keys=False).splitlines()
    line = text.index("    pools:", text.index("classes:")) + 1
    assert str(caught.value).startswith(f"floorcast.yaml:{line}: classes.chat.pools: class chat names pool chat-7b")


def test_faults_are_reported_together_each_with_its_line() -> None:
    text = yaml.safe_dump(GOOD, sort_keys=False).replace("min: 2", "min: -2").replace("p90: 4m", "p90: soon")
    with pytest.raises(ConfigError) as caught:
        parse(text)
    lines = text.splitlines()
    for fragment in ("min: -2", "p90: soon"):
        number = next(i for i, line in enumerate(lines, 1) if fragment in line)
        assert f"floorcast.yaml:{number}: " in str(caught.value)


def test_a_default_stands_in_for_a_variable_that_is_not_set() -> None:
    assert parse(changed("sources", 0, "path", to="${NOWHERE:-here}/x")).sources[0].path == "here/x"


PROMETHEUS = {"name": "prod", "kind": "prometheus", "url": "http://prometheus:9090"}
SQL = {"name": "log", "kind": "sql", "query": "SELECT $start, $end", "class": "chat",
       "columns": {"time": "t", "tokens_in": "i", "tokens_out": "o"}}  # fmt: skip
SECRET = "s3cret"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (SQL | {"databse": f"postgresql://u:{SECRET}@db/x"}, "did you mean `database`?"),
        (SQL | {"database": f"mysql://u:{SECRET}@db/x"}, "only PostgreSQL"),
        (SQL | {"database": ["${SECRET}"]}, "sources.0.database"),
        (PROMETHEUS | {"bearer_token": SECRET, "copies": {"a": SECRET}}, "should be a list"),
        (PROMETHEUS | {"basic_auth": {"username": "u", "pasword": "${SECRET}"}}, "did you mean `password`?"),
        (PROMETHEUS | {"basic_auth": "u:${SECRET}"}, "sources.0.basic_auth"),
        (PROMETHEUS | {"baerer_token": "${SECRET}"}, "did you mean `bearer_token`?"),
        (PROMETHEUS | {"zzz": "${SECRET}"}, "known keys here"),
        (PROMETHEUS | {"url": f"htp://u:{SECRET}@prometheus"}, "sources.0.url"),
        (PROMETHEUS | {"headers": SECRET}, "sources.0.headers"),
        (PROMETHEUS | {"bearer_token": f"{SECRET}-${{NOWHERE}}"}, "NOWHERE is not set"),
        (f"postgresql://u:{SECRET}@db/x", "sources.0"),
    ],
)
def test_no_fault_repeats_a_secret(source: object, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(changed("sources", to=[source]), SECRET=SECRET)
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_secret_that_is_a_number_is_not_repeated() -> None:
    """YAML reads digits as a number, which is no text."""
    auth = {"username": "u", "password": 8315731}
    for keys in ({"bearer_token": 8315731}, {"basic_auth": auth}, {"headers": {"X-Token": 8315731}}):
        with pytest.raises(ConfigError, match="valid string") as caught:
            parse(changed("sources", to=[PROMETHEUS | keys]))
        assert "8315731" not in str(caught.value)
