"""The installed command as a process, the same command in this process, and one Prefect server for all cycles."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

import pytest

from pipelines.cli.main import main as cli_main
from pipelines.prefect_settings import QUIET

BIN = Path(sys.executable).parent
STARTUP_S = 120


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


def kill_group(process: subprocess.Popen[str]) -> None:
    """End the process and what it left behind: a Prefect server, workers of a fit."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's, without what would configure floorcast or Prefect from outside."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "FLOORCAST_"))} | extra


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start(*words, cwd=..., **environment)` starts the installed command in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [BIN / "floorcast", *words],
            cwd=cwd,
            env=clean_environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        kill_group(process)


@pytest.fixture(scope="session")
def floorcast(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Ran]:
    """`floorcast(*words, cwd=..., **environment)` runs the installed command to its end, without a terminal."""

    def run(*words: str, cwd: Path, **environment: str) -> Ran:
        process = start(*words, cwd=cwd, **environment)
        out, err = process.communicate(timeout=240)
        return Ran(process.returncode, out, err)

    return run


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`main(*words, cwd=...)` is the console script's function in this process: fast, same output and exit code."""
    monkeypatch.setenv("FLOORCAST_DATA", "")
    monkeypatch.delenv("FLOORCAST_DATA")

    def run(*words: str, cwd: Path) -> Ran:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["floorcast", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli_main()
        out, err = capfd.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else int(code is not None), out, err)

    return run


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that names a running Prefect server, on which a cycle takes a third of the time."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    process = subprocess.Popen(
        [BIN / "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"],
        env=clean_environment(**QUIET, PREFECT_HOME=str(home)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + STARTUP_S
        while not _answers(f"{url}/health"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield {"PREFECT_API_URL": url, "PREFECT_HOME": str(home)}
    finally:
        kill_group(process)


def _answers(url: str) -> bool:
    with suppress(URLError, OSError), urllib.request.urlopen(url, timeout=1) as response:
        return bool(response.status == 200)
    return False


@pytest.fixture(scope="session")
def cycled(_blank: Path, tmp_path_factory: pytest.TempPathFactory, floorcast: Callable[..., Ran]) -> tuple[Path, Ran]:
    """The folder and output of a project's very first cycle, on a Prefect server of its own."""
    folder = shutil.copytree(_blank, tmp_path_factory.mktemp("cycled") / "project")
    return folder, floorcast("cycle", "--now", "2026-11-16T09:20", cwd=folder)
