"""What one part of the configuration says of another. The checks raise PydanticCustomError that says where to look."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from floorcast.source import PrometheusSource

if TYPE_CHECKING:
    from floorcast.config import Config
    from floorcast.replica import CapacityMeasure


def check_references(config: Config) -> None:
    """Classes name pools that exist, every pool serves one, and sources can tell whose demand is whose."""
    for name, spec in config.classes.items():
        for pool in spec.pools:
            if pool not in config.pools:
                raise unknown_pool(config, pool, f"class {name}", ("classes", name, "pools"))
    for pool in config.pools:
        if not config.classes_of(pool):
            raise PydanticCustomError(
                "pool_without_class",
                "pool {pool} serves no class, so it has no demand to plan for",
                {"pool": pool, "at": ("pools", pool), "hint": "name it in the `pools` of a class, or delete it"},
            )
    live = [source.name for source in config.sources if isinstance(source, PrometheusSource)]
    if live and not any(spec.match for spec in config.classes.values()):
        raise PydanticCustomError(
            "no_class_matched",
            "source {name} reads series, but no class says with `match` which are its own",
            {"name": live[0], "at": ("classes",), "hint": "add e.g. match: {model_name: llama-70b-chat} to a class"},
        )
    for place, source in enumerate(config.sources):
        for name in source.classes if isinstance(source, PrometheusSource) else ():
            at = ("sources", str(place), "classes")
            if name not in config.classes:
                raise _unknown_class(config, name, f"source {source.name}", at)
            if not config.classes[name].match:
                raise PydanticCustomError(
                    "class_not_matched",
                    "source {source} asks for class {name}, which does not say with `match` which series are its own",
                    {"source": source.name, "name": name, "at": at, "hint": f"add `match` under classes.{name}"},
                )
    names = [source.name for source in config.sources]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError(
                "duplicate_source",
                "two sources are called {name}",
                {"name": name, "at": ("sources",), "hint": "rename one of them"},
            )


def check_roles(config: Config) -> None:
    """A class is served by unified pools, or by one prefill and one decode pool."""
    for name, spec in config.classes.items():
        roles = {pool: config.pools[pool].role for pool in spec.pools}
        of = [f"{role} pool {pool}" for pool, role in roles.items()]
        missing = {"prefill": "decode", "decode": "prefill"}.get(config.pools[spec.pools[0]].role)
        what, hint = "", ""
        if len(roles) < len(spec.pools):
            what, hint = f"names pool {next(p for p in roles if spec.pools.count(p) > 1)} twice", "name it once"
        elif "unified" in roles.values() and len(set(roles.values())) > 1:
            what, hint = f"names {' and '.join(of)}", "a unified pool does both alone; drop it, or the others"
        elif missing and len(set(roles.values())) < len(roles):
            what, hint = f"names {' and '.join(of)}", "only unified pools can share a class; name one pool of each role"
        elif missing and len(roles) == 1:
            what = (
                f"names {of[0]} and no {missing} pool, so its tokens {'out' if missing == 'decode' else 'in'} have none"
            )
            hint = f"name a pool of `role: {missing}` beside it, or make it `role: unified`"
        if what:
            raise PydanticCustomError(
                "roles_unmatched",
                "class {name} {what}",
                {"name": name, "what": what, "at": ("classes", name, "pools"), "hint": hint},
            )


def check_take_overs(config: Config) -> None:
    """A pool takes over from other pools that can be lost without it, and that do the same work."""
    for name, pool in config.pools.items():
        for lost in pool.margin.takes_over:
            other = config.pools.get(lost)
            fault = hint = ""
            if other is None:
                near = difflib.get_close_matches(lost, list(config.pools), n=1)
                fault = "which is not under `pools`"
                hint = f"did you mean {near[0]}?" if near else f"use one of {sorted(config.pools)}"
            elif lost == name:
                fault, hint = "itself", "name a pool of another region"
            elif other.role != pool.role:
                fault, hint = f"a {other.role} pool, and is a {pool.role} pool", "name a pool of the same role"
            elif pool.region is not None and pool.region == other.region:
                fault, hint = f"which is lost with it: both are in {pool.region}", "name a pool of another region"
            if fault:
                raise PydanticCustomError(
                    "bad_take_over",
                    "pool {name} takes over from {lost}, {fault}",
                    {
                        "name": name,
                        "lost": lost,
                        "fault": fault,
                        "at": ("pools", name, "margin", "takes_over"),
                        "hint": hint,
                    },
                )


def check_measures(config: Config) -> None:
    """Pools measure their starts and their load at Prometheus sources that exist, and their load against demand that is
    theirs alone."""
    live = [source.name for source in config.sources if isinstance(source, PrometheusSource)]
    for name, pool in config.pools.items():
        measures = {"starts": ("startup", pool.startup.measure), "capacity": ("capacity", pool.capacity.measure)}
        for what, (section, measure) in measures.items():
            if measure is not None and measure.source not in live:
                raise PydanticCustomError(
                    "unknown_measure_source",
                    "pool {pool} measures its {what} at {source}, which is not a Prometheus source",
                    {
                        "pool": name,
                        "what": what,
                        "source": measure.source,
                        "at": ("pools", name, section, "measure", "source"),
                        "hint": f"use one of {live}" if live else "add a source of kind prometheus",
                    },
                )
        if pool.capacity.measure is not None:
            _check_load(config, name, pool.capacity.measure)


def _check_load(config: Config, pool: str, measure: CapacityMeasure) -> None:
    at = ("pools", pool, "capacity", "measure")
    unlabelled = [name for name in config.classes_of(pool) if not config.classes[name].match]
    asked = measure.match or (measure.ready_replicas and measure.waiting_requests)
    if unlabelled and not asked:
        raise PydanticCustomError(
            "engines_not_matched",
            "pool {pool} measures its capacity, and nothing says which series are its engines': class {name} has no "
            "`match`",
            {"pool": pool, "name": unlabelled[0], "at": at, "hint": "give the labels under `measure.match`"},
        )
    for name in config.classes_of(pool):
        unified = [other for other in config.classes[name].pools if config.pools[other].role == "unified"]
        if len(unified) > 1:
            raise PydanticCustomError(
                "demand_not_told_apart",
                "pool {pool} measures its capacity, but class {name} is served by {others} too, and its demand "
                "does not say how much came to each",
                {
                    "pool": pool,
                    "name": name,
                    "others": " and ".join(other for other in unified if other != pool),
                    "at": at,
                    "hint": "delete `measure`, and calibrate by a load test",
                },
            )


def check_events(config: Config) -> None:
    """Events concern classes that exist."""
    for place, event in enumerate(config.events):
        for name in event.classes:
            if name not in config.classes:
                raise _unknown_class(config, name, f"event {event.name}", ("events", str(place), "classes"))


def check_siblings(config: Config) -> None:
    """Classes borrow from classes that exist, never from themselves, and inherit what no other counts as its own."""
    classes = config.classes
    before: dict[str, str] = {}
    for name, spec in classes.items():
        if spec.like is not None and spec.like not in classes:
            raise _unknown_class(config, spec.like, f"class {name}", ("classes", name, "like"))
        chain = [name]
        while (sibling := classes[chain[-1]].like) is not None and sibling in classes and sibling not in chain:
            chain.append(sibling)
        if sibling == name:
            raise PydanticCustomError(
                "like_itself",
                "class {name} is like itself ({chain})",
                {
                    "name": name,
                    "chain": " is like ".join([*chain, name]),
                    "at": ("classes", name, "like"),
                    "hint": "let one of them stand on its own data",
                },
            )
        if spec.renamed_from is None:
            continue
        taken = f"class {before[spec.renamed_from]} is renamed from it too" if spec.renamed_from in before else ""
        if spec.renamed_from in classes:
            taken = "it is still under `classes`"
        if taken:
            raise PydanticCustomError(
                "renamed_twice",
                "class {name} is renamed from {old}, but {taken}: its demand would count twice",
                {
                    "name": name,
                    "old": spec.renamed_from,
                    "taken": taken,
                    "at": ("classes", name, "renamed_from"),
                    "hint": "delete one of the two",
                },
            )
        before[spec.renamed_from] = name


def check_live_queries(config: Config) -> None:
    """The service's queries name a Prometheus source, or there is only one."""
    names = [source.name for source in config.sources if isinstance(source, PrometheusSource)]
    for signal, query in config.service.queries.items():
        if (query.source is None and len(names) == 1) or query.source in names:
            continue
        said = "does not say which source to ask" if query.source is None else f"asks source {query.source}"
        raise PydanticCustomError(
            "no_live_source",
            "the query of {signal} {said}, and the Prometheus sources are {names}",
            {
                "signal": signal,
                "said": said,
                "names": ", ".join(names) or "none",
                "at": ("service", "queries", signal),
                "hint": "name one of kind prometheus with `source`",
            },
        )


def unknown_pool(config: Config, pool: str, where: str, at: tuple[str, ...]) -> PydanticCustomError:
    """That `where`, whose key is `at`, names a pool that there is not."""
    near = difflib.get_close_matches(pool, list(config.pools), n=1)
    return PydanticCustomError(
        "unknown_pool",
        "{where} names pool {pool}, which is not under `pools`",
        {
            "where": where,
            "pool": pool,
            "at": at,
            "hint": f"did you mean {near[0]}?" if near else f"use one of {sorted(config.pools)}",
        },
    )


def _unknown_class(config: Config, name: str, where: str, at: tuple[str, ...]) -> PydanticCustomError:
    near = difflib.get_close_matches(name, list(config.classes), n=1)
    return PydanticCustomError(
        "unknown_class",
        "{where} names class {name}, which is not under `classes`",
        {
            "where": where,
            "name": name,
            "at": at,
            "hint": f"did you mean {near[0]}?" if near else f"use one of {sorted(config.classes)}",
        },
    )
