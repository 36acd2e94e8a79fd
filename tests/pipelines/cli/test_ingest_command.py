"""`floorcast ingest` with an interval, its bar, and what `floorcast status` says of forecasts whose data changed."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import polars as pl

HOUR = timedelta(hours=1)
AT = "2026-11-16T09:20"
SOURCE = """\
sources:
  - name: gateway
    kind: sql
    query: SELECT * FROM read_parquet('trace.parquet') WHERE time >= $start AND time < $end
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}
    classes: {chat: chat, agent: agent, code: code}
    history: 2d
"""


def test_a_changed_step_marks_the_newest_forecasts_in_status(published, main, trace, now):
    changed = pl.col("time").is_between(now - 3 * HOUR, now - HOUR, closed="left") & (pl.col("class") == "chat")
    trace.with_columns(tokens_in=pl.when(changed).then(0.5 * pl.col("tokens_in")).otherwise("tokens_in")).write_parquet(
        published.base / "trace.parquet"
    )
    ran = main("ingest", "--now", AT, "--from", "2026-11-16T06:00", "--json", cwd=published.base)
    said = json.loads(ran.out)
    assert (said["stage"], said["sources"][0]["reopened_steps"], said["outdated_forecasts"]) == ("backfill", 2, 2)
    assert said["interval"] == {"start": "2026-11-16T06:00:00Z", "end": "2026-11-16T09:00:00Z"}
    shown = main("status", "--now", AT, cwd=published.base).out
    block = shown.split("newest forecasts made from data that changed since:\n")[1].split("\n\n")[0]
    assert [re.split(r"\s{2,}", line.strip()) for line in block.splitlines()[1:3]] == [
        ["chat", metric, "2026-11-16 09:00 UTC", "2", "2026-11-16 06:00 UTC", "2026-11-16 08:00 UTC"]
        for metric in ("tokens_in", "tokens_out")
    ]
    found = json.loads(main("status", "--now", AT, "--json", cwd=published.base).out)["outdated_forecasts"]
    assert [(one["workload_class"], one["metric"], one["steps"]) for one in found] == [
        ("chat", "tokens_in", 2),
        ("chat", "tokens_out", 2),
    ]
    said = "data since that forecast: 2 steps of chat from 2026-11-16 06:00 to 2026-11-16 08:00 UTC\n"
    explain = ("explain", "--now", AT, "chat-70b")
    assert f"  changed     {said}  recomputed" in main(*explain, cwd=published.base).out
    span = {"start": "2026-11-16T06:00:00Z", "end": "2026-11-16T08:00:00Z"}
    assert json.loads(main(*explain, "--json", cwd=published.base).out)["changed_data"] == [
        {"workload_class": "chat", "steps": 2} | span
    ]
    assert "changed" not in main("explain", "--now", AT, "code-8b", cwd=published.base).out
    main("forecast", "--now", AT, cwd=published.base)
    assert "changed since" not in main("status", "--now", AT, cwd=published.base).out
    assert "changed" not in main(*explain, cwd=published.base).out


def test_faults_of_an_interval_are_said_before_anything_is_read(project, main):
    ran = main("ingest", "--now", AT, "--from", "2026-11-16T06:10", cwd=project.base)
    assert ran.code == 2
    assert "rounded outwards it is from 2026-11-16T06:00:00Z to 2026-11-16T09:00:00Z" in ran.err
    assert main("ingest", "--to", AT, cwd=project.base).code == 2
    assert main("ingest", "--source", "nobody", "--now", AT, cwd=project.base).code == 7


def shown_on(terminal):
    """All that is written to it until the last writer has closed it, in as many parts as it comes."""
    content = b""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            content += part
    return content.decode()


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(project):
    text = project.file.read_text()
    project.file.write_text(text[: text.index("sources:")] + SOURCE + text[text.index("pools:") :])
    command = [Path(sys.executable).with_name("floorcast"), "ingest", "--now", AT]
    piped = subprocess.run(command, cwd=project.base, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, cwd=project.base, stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        drawn = shown_on(master)
        out = process.stdout.read()
    os.close(master)
    assert "gateway" in drawn
    assert "━" in drawn
    assert out.decode().startswith("ingest: ")
    assert "━" not in out.decode()
