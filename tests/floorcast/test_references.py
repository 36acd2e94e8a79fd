"""What one part of the configuration says of another is checked, and a fault names its line."""

import re

import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

GOOD = """\
pools:
  shared:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
classes:
  chat:
    pools: [shared]
  newchat:
    pools: [shared]
    like: chat
    scale: 0.2
    renamed_from: oldchat
events:
  - name: launch
    classes: [chat]
    start: 2026-11-30 09:00
    end: 2026-11-30T11:00:00
    zone: Europe/Berlin
    multiply: 1.5
holidays: {country: DE, subdivision: BY, zone: Europe/Berlin}
"""


def parse(text: str) -> Config:
    return parse_config(text, file="floorcast.yaml", environment={})


def test_events_holidays_and_siblings_are_read() -> None:
    config = parse(GOOD)
    assert config.events[0].multiply == 1.5
    assert config.classes["newchat"].like == "chat"
    assert config.holidays is not None
    assert config.holidays.label == "holiday DE-BY"


LIVE = """\
sources:
  - {name: eu, kind: prometheus, url: "http://eu:9090", classes: [chat-eu]}
  - {name: us, kind: prometheus, url: "http://us:9090", classes: [chat-us, batch]}
pools:
  shared:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
classes:
  chat-eu: {pools: [shared], match: {model_name: llama}}
  chat-us: {pools: [shared], match: {model_name: llama}}
  batch: {pools: [shared], match: {model_name: qwen}}
"""


def test_sources_say_which_classes_are_theirs() -> None:
    eu, us = parse(LIVE).sources
    assert (eu.classes, us.classes) == (("chat-eu",), ("chat-us", "batch"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[chat-eu]", "[chat-uk]", "2: sources.0.classes: source eu names class chat-uk, which is not under `classes`"),
        (
            "pools: [shared], match: {model_name: qwen}",
            "pools: [shared]",
            "sources.1.classes: source us asks for class",
        ),
    ],
)
def test_a_class_that_a_source_cannot_ask_for_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(LIVE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("like: chat", "like: caht", "floorcast.yaml:12: classes.newchat.like: class newchat names class caht"),
        ("like: chat", "like: caht", "did you mean chat?"),
        ("like: chat", "like: newchat", "12: classes.newchat.like: class newchat is like itself"),
        ("  chat:\n", "  chat:\n    like: newchat\n", "9: classes.chat.like: class chat is like itself (chat is"),
        ("    like: chat\n", "", "scale 0.2 has no class to scale"),
        ("scale: 0.2", "scale: 0", "classes.newchat.scale"),
        ("renamed_from: oldchat", "renamed_from: chat", "14: classes.newchat.renamed_from: class newchat"),
        ("  chat:\n", "  chat:\n    renamed_from: oldchat\n", "class chat is renamed from it too"),
        ("[chat]", "[chat, agent]", "floorcast.yaml:17: events.0.classes: event launch names class agent"),
        ("multiply: 1.5", "multiply: 1.5\n    learn: true", "yaml:16: events.0: event launch has `multiply` and"),
        ("09:00", "11:00", "floorcast.yaml:19: events.0.end: event launch ends at"),
        ("zone: Europe/Berlin\n", "zone: Europe/Belin\n", "floorcast.yaml:20: events.0.zone: Europe/Belin is not"),
        ("subdivision: BY", "subdivision: Bavaria", "22: holidays.subdivision: DE has no subdivision Bavaria"),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_key_and_remedy(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as raised:
        parse(GOOD.replace(old, new, 1))
    assert said in str(raised.value)


def test_a_chain_of_siblings_is_no_cycle() -> None:
    text = GOOD.replace("events:", "  third: {pools: [shared], like: newchat}\nevents:")
    assert parse(text).classes["third"].like == "newchat"


ROLES = """\
pools:
  prefill:
    role: prefill
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 9000}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  decode:
    role: decode
    gpu: {type: H100}
    capacity: {decode_tokens_per_s: 3000}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  other-decode:
    role: decode
    gpu: {type: H100}
    capacity: {decode_tokens_per_s: 3000}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  unified:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
classes:
  chat: {pools: POOLS}
  others: {pools: [prefill, decode]}
  rest: {pools: [other-decode, prefill]}
  code: {pools: [unified]}
"""


@pytest.mark.parametrize(
    ("pools", "what", "remedy"),
    [
        (
            "[prefill]",
            "prefill pool prefill and no decode pool, so its tokens out have none",
            "`role: decode` beside it",
        ),
        ("[decode]", "decode pool decode and no prefill pool, so its tokens in have none", "`role: prefill` beside it"),
        ("[prefill, unified]", "prefill pool prefill and unified pool unified", "a unified pool does both alone"),
        ("[prefill, decode, other-decode]", "and decode pool other-decode", "only unified pools can share a class"),
        ("[decode, decode]", "names pool decode twice", "name it once"),
    ],
)
def test_pools_of_a_class_must_do_all_its_work_once(pools: str, what: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ROLES.replace("POOLS", pools))
    said = str(caught.value)
    assert said.startswith("floorcast.yaml:26: classes.chat.pools: class chat names ")
    assert what in said
    assert remedy in said


def test_the_capacity_that_a_role_never_uses_may_be_left_out() -> None:
    config = parse(ROLES.replace("POOLS", "[prefill, decode]"))
    assert config.pools["prefill"].capacity.prefill_tokens_per_s == 9000
    assert config.pools["decode"].capacity.decode_tokens_per_s == 3000
    for pool, lacking in (("prefill", "prefill"), ("unified", "decode")):
        mine = ROLES.replace("POOLS", "[prefill, decode]").split(f"  {pool}:\n")
        mine[1] = re.sub(rf"{lacking}_tokens_per_s: \d+", "target_utilization: 0.5", mine[1], count=1)
        with pytest.raises(ConfigError, match=rf"pools\.{pool}\.capacity\.{lacking}_tokens_per_s: is missing"):
            parse(f"  {pool}:\n".join(mine))


def test_starts_are_measured_at_a_prometheus_source_that_exists() -> None:
    text = GOOD.replace("startup: {p90: 4m}", "startup: {p90: 4m, measure: {source: prod}}")
    with pytest.raises(ConfigError, match="measures its starts at prod, which is not a Prometheus source"):
        parse(text)


MEASURED = "capacity: {measure: {source: prod}, "


def test_load_is_measured_at_a_prometheus_source_that_exists() -> None:
    with pytest.raises(ConfigError, match="measures its capacity at prod, which is not a Prometheus source"):
        parse(GOOD.replace("capacity: {", MEASURED))


PROD = 'sources: [{name: prod, kind: prometheus, url: "http://prometheus:9090"}]\n'
OTHER = GOOD[GOOD.index("    gpu") : GOOD.index("classes:")]


@pytest.mark.parametrize(
    ("pools", "match", "what"),
    [
        ("[shared]", "", "nothing says which series are its engines': class newchat has no `match`"),
        (
            "[shared, other]",
            ", match: {x: y}",
            "class chat is served by other too, and its demand does not say how much",
        ),
    ],
)
def test_load_is_measured_where_it_can_be_told_whose_it_is(pools: str, match: str, what: str) -> None:
    text = PROD + GOOD.replace("capacity: {", f"{MEASURED[:-3]}{match}}}, ", 1)
    text = text.replace("chat:\n    pools: [shared]", f"chat:\n    match: {{model_name: m}}\n    pools: {pools}", 1)
    with pytest.raises(ConfigError) as caught:
        parse(text.replace("classes:\n", f"  other:\n{OTHER}classes:\n", 1) if "other" in pools else text)
    assert what in str(caught.value)
