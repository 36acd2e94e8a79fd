"""Configurations that cannot be used: each fault is named with its place and a remedy, and nothing moves."""

from __future__ import annotations

import pytest

NOW = ("--now", "2026-11-16T09:00")
CHAT = "pools:\n  chat-70b:"
MOONCAKE = "{name: history, kind: trace, format: mooncake, path: trace.jsonl, class: chat}"


def case(name, change, says, words=("plan",)):
    """`change` says which texts of a good configuration to replace, or damages its folder; `says` is to be named."""
    return pytest.param(change, says, words, id=name)


def calendar(*entries):
    return {CHAT: CHAT + "\n    calendar:" + "".join(f"\n      - {entry}" for entry in entries)}


def config(content):
    return lambda folder: (folder / "floorcast.yaml").write_bytes(content)


def only_source(text):
    def change(folder):
        file = folder / "floorcast.yaml"
        before, rest = file.read_text().split("sources:\n")
        file.write_text(f"{before}sources:\n  - {text}\npools:{rest.partition('pools:')[2]}")

    return change


def config_as_folder(folder):
    (folder / "floorcast.yaml").unlink()
    (folder / "floorcast.yaml").mkdir()


CASES = [
    case(
        "missing_config",
        {},
        ("no such file", "gone.yaml", "floorcast init"),
        ("plan", "-c", "gone.yaml"),
    ),
    case("config_is_a_folder", config_as_folder, ("floorcast.yaml: cannot be read: Is a directory\n",)),
    case("empty_config", config(b""), ("empty", "floorcast init")),
    case("config_not_yaml", config(b"pools: {a: [1, 2"), ("not YAML", "floorcast.yaml:1", "indentation")),
    case("config_a_list", config(b"- step: 1h\n"), ("not a mapping of keys",)),
    case("config_not_utf8", config(b"\xff\xfe\x00mode"), ("not UTF-8 at byte 0",)),
    case("unknown_key", {"horizon: 12h": "horizont: 12h"}, (":3: horizont", "did you mean `horizon`?")),
    case("duplicate_key", {"horizon: 12h": "horizon: 12h\nhorizon: 24h"}, ("`horizon` appears twice", ":4")),
    case("no_unit", {"step: 1h": "step: 60"}, ("step", "60", "a number and a unit")),
    case("unknown_unit", {"{p90: 4m}": "{p90: 4 parsecs}"}, ("chat-70b.startup.p90", "4 parsecs", "90s, 5m")),
    case("step_not_of_a_day", {"step: 1h": "step: 7m"}, ("step 7m is not", "divides a day", "use 1m, 5m")),
    case("horizon_within_lead", {"horizon: 12h": "horizon: 1h"}, ("which the horizon does not reach", "lengthen")),
    case(
        "min_above_max",
        {"bounds: {min: 1, max: 60}\n    fallback_replicas: 30": "bounds: {min: 9, max: 6}"},
        ("min 9 is above max 6", "chat-70b.bounds", "raise max or lower min"),
    ),
    case(
        "fallback_outside_bounds",
        {"fallback_replicas: 30": "fallback_replicas: 99"},
        ("99 is outside bounds 1 to 60",),
    ),
    case(
        "negative_capacity",
        {"prefill_tokens_per_s: 1600": "prefill_tokens_per_s: -5"},
        ("prefill_tokens_per_s", "-5", "use a larger number"),
    ),
    case(
        "zero_without_saying_when",
        {"bounds: {min: 1, max: 60}\n    fallback_replicas: 30": "bounds: {min: 0, max: 60}"},
        ("chat-70b.bounds.min: min 0 lets the pool scale to zero", "use min: 1, or say when with `scale_to_zero:"),
    ),
    case(
        "never_zero",
        {"    fallback_replicas: 30": "    scale_to_zero: {wake_up: 3m, below_tokens_per_s: 50}"},
        ("chat-70b.scale_to_zero: bounds.min keeps replicas", "set bounds.min to 0, or delete `scale_to_zero`"),
    ),
    case(
        "bounds_not_whole_nodes",
        {"    fallback_replicas: 30": "    shape: {multiple_of: 4}"},
        ("chat-70b.bounds.min: min 1 is not a multiple of 4", "remedy: use 4"),
    ),
    case(
        "step_down_of_half_a_replica",
        {"    fallback_replicas: 30": "    shape: {step_down: 1.5}"},
        ("shape.step_down", "1.5 is neither whole replicas nor a share under 100 %", "3 or 10%"),
    ),
    case(
        "takes_over_from_itself",
        {"    fallback_replicas: 30": "    margin: {takes_over: {chat-70b: 50%}}"},
        ("chat-70b.margin.takes_over: pool chat-70b takes over from chat-70b, itself", "another region"),
    ),
    case(
        "takes_over_from_nobody",
        {"    fallback_replicas: 30": "    margin: {takes_over: {code-9b: 50%}}"},
        ("takes over from code-9b, which is not under `pools`", "did you mean code-8b?"),
    ),
    case("unknown_pool", {"pools: [code-8b]": "pools: [code-9b]"}, ("code-9b", "did you mean code-8b?")),
    case("pool_without_class", {"pools: [code-8b]": "pools: [chat-70b]"}, ("pool code-8b serves no class",)),
    case(
        "unset_variable",
        {"trace.parquet": "${TRACES_NOWHERE}/a.csv"},
        ("TRACES_NOWHERE is not set", "sources.0.path", "export"),
    ),
    case(
        "unknown_zone",
        {"mode: advisory": "zone: Europe/Berlim"},
        ("Europe/Berlim", "did you mean Europe/Berlin?"),
    ),
    case(
        "event_ends_first",
        {CHAT: "events:\n  - {name: a, start: 2026-12-02, end: 2026-12-01, multiply: 2}\n" + CHAT},
        ("event a ends at 2026-12-01", "events.0.end", "correct `end`"),
    ),
    case(
        "calendar_without_length",
        calendar('{name: a, start: "08:00", end: "08:00", minimum: 3}'),
        ("ends at 08:00, when it starts", "chat-70b.calendar.0.end", 'end: "24:00"'),
    ),
    case(
        "calendar_unknown_zone",
        calendar('{name: a, start: "08:00", end: "09:00", minimum: 3, zone: Amerika/New_York}'),
        ("chat-70b.calendar.0.zone", "did you mean America/New_York?"),
    ),
    case(
        "minimum_above_max",
        calendar('{name: a, start: "08:00", end: "09:00", minimum: 61}'),
        ("has minimum 61 above bounds.max 60 of pool chat-70b", "raise bounds.max or lower the minimum"),
    ),
    case(
        "maintenance_overlaps",
        calendar(
            '{name: a, kind: maintenance, start: "08:00", end: "10:00", ceiling: 1}',
            '{name: b, kind: maintenance, start: "09:00", end: "11:00", ceiling: 2}',
        ),
        ("b is maintenance of pool chat-70b at the same time as a", "with the lower ceiling, or move one"),
    ),
    case(
        "prefill_alone",
        {CHAT: CHAT + "\n    role: prefill"},
        ("names prefill pool chat-70b and no decode pool", "classes.chat.pools", "name a pool of `role: decode`"),
    ),
    case(
        "prefill_beside_unified",
        {"  code-8b:": "  code-8b:\n    role: prefill", "pools: [code-8b]": "pools: [code-8b, chat-70b]"},
        ("classes.code.pools", "names prefill pool code-8b and unified pool chat-70b", "drop it, or the others"),
    ),
    case(
        "several_pools_without_price",
        {"pools: [code-8b]": "pools: [code-8b, chat-70b]"},
        ("classes.code.pools", "the price of code-8b is not known", "give their `gpu.usd_per_gpu_hour`"),
    ),
    case("relative_times_without_start", only_source(MOONCAKE), ("sources.0", "needs `start`", "start: 2026")),
    case(
        "class_not_configured",
        {"requests: requests}": "requests: requests}\n    classes: {chat: chatt}"},
        ("class chatt is not configured", "did you mean chat?"),
        ("ingest",),
    ),
    case(
        "step_no_multiple_of_rows",
        {"row_interval: 5m": "row_interval: 7m"},
        ("sources.history.row_interval", "7m"),
        ("ingest",),
    ),
]


@pytest.mark.parametrize(("change", "says", "words"), CASES)
def test_a_fault_is_named_and_nothing_moves(refused, change, says, words):
    refused(change, *words, code=2, says=says)


def test_every_fault_of_a_configuration_is_named_at_once(main, published, swap):
    for old, new in (
        ("horizon: 12h", "horizont: 12h"),
        ("{p90: 4m}", "{p90: soon}"),
        ("pools: [code-8b]", "pools: []"),
    ):
        swap(published.base, old, new)
    ran = main("check", *NOW, cwd=published.base)
    assert ran.code == 2
    assert ran.err.count("remedy:") == 3
