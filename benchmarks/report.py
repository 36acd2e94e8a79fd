"""What every suite writes: its figures, and the machine they were measured on."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl


def parser(suite: str, says: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{suite}", description=says)
    made.add_argument("--json", type=Path, help="also write the figures to this file")
    return made


def fastest(work: Callable[[], object], *, runs: int = 3) -> float:
    """Seconds of the fastest of a few runs: the one that others disturbed least."""
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def peak_memory_gib() -> float:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def write(suite: str, *, summary: dict[str, float], detail: dict[str, Any], out: Path | None) -> None:
    """Print the figures, and write them with the machine's description where asked for."""
    document = {
        "suite": suite,
        "summary": {name: round(value, 4) for name, value in summary.items()},
        "detail": detail,
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "python": platform.python_version(),
            "duckdb": duckdb.__version__,
            "polars": pl.__version__,
        },
    }
    text = json.dumps(document, indent=2)
    print(text)  # noqa: T201 - a benchmark is read on the terminal
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")
