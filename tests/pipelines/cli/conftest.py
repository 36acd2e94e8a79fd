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
from typing import Any
from urllib.error import URLError

import pytest

from floorcast.errors import StoreError
from pipelines.cli.main import main as cli_main
from pipelines.prefect_settings import QUIET
from pipelines.project import Project

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


def _swap(folder: Path, old: str, new: str) -> None:
    file = folder / "floorcast.yaml"
    text = file.read_text()
    assert text.count(old) == 1, old
    file.write_text(text.replace(old, new))


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def swap() -> Callable[[Path, str, str], None]:
    """`swap(folder, old, new)` replaces text that the configuration holds once."""
    return _swap


@pytest.fixture(scope="session")
def bytes_of() -> Callable[[Path], dict[str, bytes]]:
    """`bytes_of(folder)` gives the content of each file in it."""
    return _bytes_of


@pytest.fixture
def refused(main: Callable[..., Ran], published: Project, dump: Callable[[Project], dict[str, Any]]) -> Any:
    """`refused(change, *words, code=..., says=...)` damages a published project, runs the command, and sees that the
    error names what is to be named and that nothing stored or published moved.

    `change` is a function of the project's folder, or which texts of its configuration to replace by what.
    """

    def stored() -> dict[str, Any]:
        return {table: rows for table, rows in dump(published).items() if table != "runs"}

    def run(change: dict[str, str] | Callable[[Path], object], *words: str, code: int, says: tuple[str, ...]) -> None:
        if isinstance(change, dict):
            for old, new in change.items():
                _swap(published.base, old, new)
        else:
            change(published.base)
        before = _bytes_of(published.base)
        rows = None if code == StoreError.exit_code else stored()
        ran = main(*words, "--now", "2026-11-16T09:00", cwd=published.base)
        assert ran.code == code, ran.err
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert "\n  remedy: " in ran.err
        assert "Traceback" not in ran.err
        for text in says:
            assert text in ran.err
        after = _bytes_of(published.base)
        if rows is None:
            assert after == before
        else:
            # A stage that failed is on record; all else that is stored stays.
            assert stored() == rows
            name = str(published.store_path)
            assert {path: data for path, data in after.items() if path != name} == {
                path: data for path, data in before.items() if path != name
            }

    return run
