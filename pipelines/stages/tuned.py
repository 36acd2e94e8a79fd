"""What was tuned, for the stages that work with it: settings in force, gates, and what these rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from floorcast.config import Config
from floorcast.pool import Pool
from floorcast.tuning import Expected, Gate, TunedSettings, Tuning
from floorcast.types import Proof, Served
from pipelines.project import Project
from pipelines.stages.startups import with_measured_startups
from scaling.tuning.candidates import with_settings
from store.connection import Store, open_store
from store.tunings import read_tunings

Tunings = Mapping[str, Tuning]


def tunings_of(store: Store, *, at: datetime) -> dict[str, Tuning]:
    """The newest tuning of each pool at or before `at`."""
    return {row["pool"]: Tuning.model_validate_json(row["result"]) for row in read_tunings(store, at=at).to_dicts()}


def with_tunings(project: Project, as_of: datetime) -> Project:
    """The project with the tuned settings of the pools that apply theirs."""
    if not any(pool.tune.apply for pool in project.config.pools.values()) or not project.store_path.exists():
        return project
    with open_store(project.store_path) as store:
        tunings = tunings_of(store, at=as_of)
    pools = {
        name: with_settings(pool, settings_in_force(pool, tunings[name]))
        if pool.tune.apply and name in tunings
        else pool
        for name, pool in project.config.pools.items()
    }
    return replace(project, config=project.config.model_copy(update={"pools": pools}))


def in_force(project: Project, as_of: datetime) -> Project:
    """The project as stages work with it: with the startups measured and the settings tuned up to `as_of`."""
    return with_tunings(with_measured_startups(project, as_of), as_of)


def settings_in_force(pool: Pool, tuning: Tuning) -> TunedSettings:
    """Those of the overlay alone where the gate is closed and heeded."""
    return tuning.overlay_alone.settings if gate_of(pool, tuning) == "closed" else tuning.floors.settings


def gate_of(pool: Pool, tuning: Tuning | None) -> Gate:
    """`untested` too where the pool does not heed a gate, or not take the settings: what it compares with is the
    overlay at its tuned ones."""
    return tuning.gate if tuning is not None and pool.tune.apply and pool.tune.gate else "untested"


def gates(config: Config, tunings: Tunings) -> dict[str, Gate]:
    return {name: gate_of(pool, tunings.get(name)) for name, pool in config.pools.items()}


def proofs(config: Config, tunings: Tunings) -> dict[str, Proof]:
    """Of the pools that were tuned."""
    return {
        name: Proof(
            as_of=found.as_of,
            days=found.days,
            promise=found.promise,
            floors=_served(found.floors),
            overlay_alone=_served(found.overlay_alone),
            why=found.why,
            applied=pool.tune.apply,
        )
        for name, pool in config.pools.items()
        if (found := tunings.get(name)) is not None
    }


def _served(expected: Expected) -> Served:
    multiple = expected.over_clairvoyant
    return Served(
        over_clairvoyant=None if multiple is None else round(multiple.value, 4),
        gpu_hours_per_day=round(expected.gpu_hours_per_day.value, 2),
        on_time=round(expected.on_time.value, 6),
    )
