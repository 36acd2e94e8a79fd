"""`floorcast check` against real servers, as a terminal and as a program see it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.server

FLOORCAST = Path(sys.executable).with_name("floorcast")
MODELS = {"chat": "llama-70b", "steady": "qwen-8b", "absent": "no-such-model"}


@pytest.fixture
def command(tmp_path: Path, world: Any, prometheus: str, write_project: Any) -> list[str]:
    project = write_project(tmp_path, MODELS, url=prometheus.replace("//", "//me:s3cret@"), history="3d")
    return [str(FLOORCAST), "check", "--config", str(project.file), "--now", world.end.isoformat()]


def on_terminal(command: list[str], columns: int) -> list[str]:
    """The lines that a command prints on a terminal, less what makes them bold."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"}) as process:
        os.close(theirs)
        printed = b""
        while part := _read(ours):
            printed += part
    os.close(ours)
    assert process.returncode == 0, printed.decode()
    return [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in printed.decode().splitlines()]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # Linux's way to say that the other end is closed.
        return b""


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_the_terminal(command: list[str], columns: int) -> None:
    """But for the first line, which is the path of the configuration."""
    _, *lines = on_terminal(command, columns)
    assert max(map(len, lines)) <= columns
    head = lines.index('class steady  {model_name="qwen-8b"}')
    first, last, others = "2025-03-04 00:00", "2025-03-06 00:00", "2d       1, 15m"
    assert lines[head + 1].split("  ")[0] == "counter"
    assert re.sub(" +", " ", lines[head + 2]) == re.sub(" +", " ", f"tokens_in 2 30s {first} {last} {others}")
    assert "class absent: no demand in any source" in "\n".join(lines)


def test_piped_it_tells_all_of_it_in_whole_lines(command: list[str]) -> None:
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "  tokens_in is vllm:prompt_tokens_total, then vllm:prompt_tokens\n" in printed
    assert "  missing: tokens_in, tokens_out: 2d of history; a weekly shape needs 21d\n" in printed
    assert re.search(
        r"\n  last day: mean [\d,.]+ in and [\d,.]+ out, busiest [\d,.]+ in and [\d,.]+ out tokens/s\n", printed
    )
    assert "s3cret" not in printed


def test_it_tells_which_series_were_merged_and_which_rise_alike(command: list[str], world: Any) -> None:
    """At 13:00 two scrapers store some of chat's replicas; the two of steady count the same at the same time."""
    command[command.index("--now") + 1] = (world.start + timedelta(hours=13)).isoformat()
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    chat, steady = (
        next(entry for entry in found["sources"][0]["classes"] if entry["class"] == name) for name in ("chat", "steady")
    )
    assert {"prometheus", "job"} <= set(chat["counters"][0]["merged_by"])
    assert not any(counter["doubts"] for counter in chat["counters"])
    [doubt] = [text for text in steady["missing"] if "alike" in text]
    assert doubt.startswith("tokens_in, tokens_out: 1 pair of series, which rise alike and are both counted;")
    assert doubt.endswith("what tells them apart: instance, pod")


def test_as_json_it_tells_the_same(command: list[str]) -> None:
    printed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    assert "s3cret" not in printed
    found = json.loads(printed)
    assert found["classes_without_demand"] == ["absent"]
    [source] = found["sources"]
    steady = next(entry for entry in source["classes"] if entry["class"] == "steady")
    [tokens_in, *_] = steady["counters"]
    assert tokens_in["names"] == ["vllm:prompt_tokens_total", "vllm:prompt_tokens"]
    assert (tokens_in["series"], tokens_in["resolution_s"], tokens_in["history_s"]) == (2, 30, 172_800)
    assert [gap["start"] for gap in tokens_in["gaps"]] == ["2025-03-05T10:10:00Z"]
    assert {signal["signal"]: signal["names"] for signal in steady["signals"]}["ttft_s"] == []


def test_pools_that_share_a_class_are_told_that_they_have_no_live_signals(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "floorcast.yaml"
    config = yaml.safe_load(file.read_text())
    config["pools"]["pool"]["gpu"]["usd_per_gpu_hour"] = 3.99
    config["pools"]["told"] = config["pools"]["pool"] | {"overlay": {"match": {"job": "told"}}}
    config["classes"]["chat"]["pools"] = ["pool", "told"]
    file.write_text(yaml.safe_dump(config))
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    said = [line for line in printed.splitlines() if "no live signals" in line]
    assert said == ["  pool pool has no live signals: class chat has several pools; give it `overlay.match`"]
