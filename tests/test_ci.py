"""What CI runs fails where a server that tests read from is missing, in place of skipping them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / ".ci" / "run"
TOOLS = ("chromium", "prometheus", "promtool", "victoria-metrics", "openssl")
SYSTEM = ("bash", "env", "dirname", "echo")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs: all tools, an `apt-get` that installs nothing, a `make` that notes what it is asked for."""
    for name in SYSTEM:
        (tmp_path / name).symlink_to(next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists()))
    for name in (*TOOLS, "apt-get"):
        program(tmp_path / name, "exit 0")
    program(tmp_path / "make", f'echo "$1" >>{tmp_path / "made"}')
    (tmp_path / "postgresql" / "15" / "bin").mkdir(parents=True)
    program(tmp_path / "postgresql" / "15" / "bin" / "initdb", "exit 0")
    return tmp_path


def program(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/bash\n{does}\n")
    path.chmod(0o755)


def run(machine: Path) -> tuple[int, str, list[str]]:
    """The exit code, what was said, and what `make` was asked for."""
    environment = {"PATH": str(machine), "POSTGRESQL": str(machine / "postgresql")}
    done = subprocess.run([RUN], env=environment, capture_output=True, text=True, check=False, timeout=60)
    made = machine / "made"
    return done.returncode, done.stderr, made.read_text().split() if made.exists() else []


def test_with_all_tools_the_checks_and_tests_are_run(machine: Path) -> None:
    assert run(machine) == (0, "", ["check", "test"])


@pytest.mark.parametrize("tool", [*TOOLS, "postgresql"])
def test_a_tool_that_cannot_be_installed_is_named_and_nothing_is_run(machine: Path, tool: str) -> None:
    if tool == "postgresql":
        (machine / "postgresql" / "15" / "bin" / "initdb").unlink()
    else:
        (machine / tool).unlink()
    code, said, made = run(machine)
    assert code == 1
    assert said == f"not installed, so that tests would be skipped: {tool}\n"
    assert made == []


def test_what_is_installed_then_is_enough(machine: Path) -> None:
    (machine / "prometheus").unlink()
    (machine / "promtool").unlink()
    install = f"for tool in prometheus promtool; do /bin/cp {machine}/openssl {machine}/$tool; done"
    program(machine / "apt-get", f'[ "$1" = update ] || {install}')
    assert run(machine) == (0, "", ["check", "test"])
    assert os.access(machine / "promtool", os.X_OK)
