"""`floorcast cost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from floorcast.units import format_time
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say, say_json, say_table

if TYPE_CHECKING:
    import polars as pl

    from scaling.money import Split


def register(app: typer.Typer) -> None:
    @app.command("cost")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """What the published floors cost by pool, class and day, and the cheapest split of GPUs.

        The split says how many GPUs would be reserved, on demand and spot over the horizon, at the prices configured.
        A price not known is no cost.

        \b
        Example:
          floorcast cost --config floorcast.yaml
        """
        from pipelines.cli.published import published_by
        from scaling.money import costs, splits
        from store.connection import open_store
        from store.floors import read_floors
        from store.forecasts import read_forecast

        project, moment = project_of(config, data), now_or(now)
        with open_store(project.store_path) as store:
            record = published_by(store, moment)
            floors, forecasts = read_floors(store, record.run_id), read_forecast(store, at=record.issued_at)
        found = costs(project.config, floors=floors, forecasts=forecasts)
        cheapest = list(splits(project.config, floors))
        if as_json:
            say_json(
                {"version": record.version, "costs": found.to_dicts(), "splits": [_split(one) for one in cheapest]}
            )
            return
        say(
            f"Floors of version {record.version}, issued {format_time(record.issued_at)}; days in {project.config.zone}"
        )
        say()
        say_table(("pool", "class", "day", "GPU-hours", "cost", "per million tokens"), _rows(found))
        if cheapest:
            say()
            say_table(
                ("GPUs of", "reserved", "on demand", "spot", "cost", "all on demand"),
                [
                    (
                        f"{one.gpu.type}{f' in {one.region}' if one.region else ''} ({', '.join(one.pools)})",
                        f"{one.reserved_gpus} GPUs",
                        f"{one.on_demand_gpu_hours:,.0f} GPU-hours",
                        f"{one.spot_gpu_hours:,.0f} GPU-hours",
                        f"${one.usd:,.2f}",
                        f"${one.on_demand_usd:,.2f}",
                    )
                    for one in cheapest
                ],
            )


def _rows(found: pl.DataFrame) -> list[tuple[str, ...]]:
    """A row for each class and day, and one for the fleet where every price is known."""
    rows = [
        (
            row["pool"],
            row["workload_class"],
            str(row["day"]),
            f"{row['gpu_hours']:,.1f}",
            _usd(row["usd"]),
            _usd(1e6 * row["usd"] / row["tokens"] if row["usd"] is not None and row["tokens"] else None),
        )
        for row in found.iter_rows(named=True)
    ]
    all_known = found["usd"].null_count() == 0
    total = float(found["usd"].sum()) if all_known else None
    tokens = float(found["tokens"].sum()) if found["tokens"].null_count() == 0 else 0.0
    per_million = _usd(1e6 * total / tokens if total is not None and tokens else None)
    return [*rows, ("all", "", "", f"{found['gpu_hours'].sum():,.1f}", _usd(total), per_million)]


def _usd(value: float | None) -> str:
    return "-" if value is None else f"${value:,.2f}"


def _split(one: Split) -> dict[str, Any]:
    return {
        "gpu": one.gpu.type,
        "region": one.region,
        "pools": list(one.pools),
        "reserved_gpus": one.reserved_gpus,
        "reserved_gpu_hours": one.reserved_gpu_hours,
        "on_demand_gpu_hours": one.on_demand_gpu_hours,
        "spot_gpu_hours": one.spot_gpu_hours,
        "usd": one.usd,
        "on_demand_usd": one.on_demand_usd,
    }
