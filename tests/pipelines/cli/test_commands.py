"""What every command owes its user: help, exit codes, JSON, plain text in a pipe."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import typer

from floorcast import __version__
from floorcast.parsing import parse_config
from pipelines.cli.main import app
from pipelines.publishers.schedule import read_schedule

AT = ("--now", "2026-11-16T09:00")
STAGES = ("ingest", "fit", "forecast", "plan", "publish", "evaluate", "dashboard")
COMMANDS = (
    "init",
    "check",
    "demo",
    *STAGES,
    "cycle",
    "explain",
    "diff",
    "whatif",
    "status",
    "calibrate",
    "backtest",
    "replay",
    "tune",
    "cost",
    "serve",
    "rbac",
)


def test_these_are_all_commands():
    assert set(typer.main.get_command(app).commands) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command, main, tmp_path):
    ran = main(command, "--help", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(rf"Example:\n +floorcast {command}\b", ran.out)
    assert "--json" in ran.out


def test_it_tells_its_version(main, tmp_path):
    ran = main("--version", cwd=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, f"floorcast {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nope",), "No such command 'nope'"),
        (("status", "--nope"), "No such option: --nope"),
        (("explain",), "Missing argument"),
        (("plan", "--now", "yesterday"), "'yesterday' is not a time"),
        (("explain", "chat-70b", "--at", "noon"), "'noon' is not a time"),
        ((), "Usage: floorcast"),
    ],
)
def test_wrong_usage_is_exit_code_2(words, says, main, published):
    ran = main(*words, cwd=published.base)
    assert ran.code == 2
    assert says in ran.err + ran.out
    assert "Traceback" not in ran.err


def test_exit_codes_are_documented(main, tmp_path):
    help_text = re.sub(r"\s+", " ", main("--help", cwd=tmp_path).out)
    for words in ("0 done", "2 configuration or usage", "3 input data", "4 database", "5 forecast", "6 publication",
                  "7 not found", "8 a cycle that published although a stage failed", "130 interrupted"):  # fmt: skip
        assert words in help_text


@pytest.mark.parametrize("command", [name for name in STAGES if name != "fit"])
def test_a_stage_prints_one_line_or_one_document(command, main, published):
    """`fit` takes seconds; the cycle's tests run it."""
    line = main(command, *AT, cwd=published.base)
    assert (line.code, line.err) == (0, "")
    assert re.fullmatch(rf"{command}: .+ \(\d+\.\d s\)\n", line.out)
    document = main(command, *AT, "--json", cwd=published.base)
    assert (document.code, document.err) == (0, "")
    assert json.loads(document.out)["stage"] == command


def test_a_stage_s_document_holds_its_result(main, published):
    said = json.loads(main("publish", *AT, "--json", cwd=published.base).out)
    schedule = read_schedule(published.output / "schedule.json")
    assert said["version"] == schedule.version
    assert said["content_hash"] == schedule.content_hash
    assert said["due"] == {name: pool.windows[0].min_replicas for name, pool in schedule.pools.items()}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("fit",), 5),
        (("forecast",), 5),
        (("publish",), 6),
        (("status",), 7),
        (("explain", "chat-70b"), 7),
        (("check", "--config", "gone.yaml"), 2),
        (("ingest",), 3),
        (("dashboard",), 6),
    ],
)
def test_a_failure_is_a_document_too(words, code, main, project):
    (project.base / "trace.parquet").unlink()
    (project.base / "published").mkdir()
    (project.base / "published" / "site").write_text("mine")
    ran = main(*words, *AT, "--json", cwd=project.base)
    error = json.loads(ran.out)["error"]
    assert set(error) == {"what", "where", "remedy", "exit_code"}
    assert ran.code == error["exit_code"] == code
    assert all(error[key] for key in ("what", "where", "remedy"))
    assert ran.err == ""
    plain = main(*words, *AT, cwd=project.base)
    assert plain.code == code
    assert plain.out == ""
    assert plain.err == f"error: {error['where']}: {error['what']}\n  remedy: {error['remedy']}\n"


def test_in_a_pipe_nothing_is_coloured_or_cut(floorcast, published, now):
    """Through the installed command, whatever terminal it believes to be on."""
    terminal = {"COLUMNS": "40", "TERM": "xterm-256color"}
    status = floorcast("status", *AT, cwd=published.base, **terminal)
    check = floorcast("check", *AT, cwd=published.base, **terminal)
    for ran in (status, check):
        assert (ran.code, ran.err) == (0, "")
        assert "\x1b" not in ran.out
        assert "…" not in ran.out
    assert re.search(r"^class +steps +first +newest data +age +model in +model out *$", status.out, re.MULTILINE)
    assert re.search(r"^chat +288 +2026-11-04 +2026-11-16 08:00 UTC +0s +\w+ +\w+ *$", status.out, re.MULTILINE)
    assert re.search(r"^publish-20261116T090000Z +succeeded ", status.out, re.MULTILINE)
    assert re.search(
        r"^chat +288 +0 +2026-11-04 09:00 UTC +2026-11-16 08:00 UTC +daily models", check.out, re.MULTILINE
    )


def test_status_before_anything_exists_says_what_to_do(main, project):
    ran = main("status", cwd=project.base)
    assert ran.code == 7
    assert "no database yet" in ran.err
    assert "run `floorcast cycle`" in ran.err


def test_status_of_a_database_without_a_publication(main, project, live, now):
    live(project, now, "ingest")
    ran = main("status", *AT, cwd=project.base)
    assert ran.code == 0
    assert ran.out.startswith("nothing is published yet")
    assert json.loads(main("status", *AT, "--json", cwd=project.base).out)["publication"] is None


def test_status_says_loudly_that_a_publication_has_expired(main, published):
    late = ("--now", "2026-11-16T11:00")
    assert "EXPIRED" in main("status", *late, cwd=published.base).out
    assert json.loads(main("status", *late, "--json", cwd=published.base).out)["publication"]["expired"] is True
    assert "valid until 2026-11-16 11:00 UTC" in main("status", *AT, cwd=published.base).out


def test_status_shows_a_failed_stage(main, published):
    (published.base / "trace.parquet").unlink()
    assert main("ingest", "--now", "2026-11-16T10:00", cwd=published.base).code == 3
    assert re.search(r"^ingest-20261116T100000Z +failed", main("status", *AT, cwd=published.base).out, re.MULTILINE)


def test_init_writes_a_configuration_that_checks(main, tmp_path):
    ran = main("init", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    text = (tmp_path / "floorcast.yaml").read_text()
    assert parse_config(text, file="floorcast.yaml", environment={}).pools.keys() == {"chat-70b"}
    (tmp_path / "requests.csv").write_text(
        "timestamp,prompt_tokens,completion_tokens\n"
        "2026-11-16T08:00:00Z,100,20\n2026-11-16T08:07:00Z,50,10\n2026-11-16T08:21:00Z,70,30\n"
    )
    checked = main("check", *AT, "--json", cwd=tmp_path)
    assert checked.code == 0, checked.err
    [source] = json.loads(checked.out)["sources"]
    assert [(entry["class"], entry["steps"]) for entry in source["classes"]] == [("chat", 4)]
    assert not (tmp_path / "floorcast.duckdb").exists()


def test_init_refuses_to_overwrite(main, tmp_path):
    mine = tmp_path / "floorcast.yaml"
    mine.write_text("mine")
    ran = main("init", cwd=tmp_path)
    assert ran.code == 2
    assert "--force" in ran.err
    assert mine.read_text() == "mine"
    assert json.loads(main("init", "--json", cwd=tmp_path).out)["error"]["exit_code"] == 2
    assert json.loads(main("init", "--force", "--json", cwd=tmp_path).out) == {"config": "floorcast.yaml"}
    assert mine.read_text().startswith("# floorcast configuration")


def test_init_where_nothing_can_be_written(main, tmp_path):
    ran = main("init", "nowhere/floorcast.yaml", cwd=tmp_path)
    assert ran.code == 2
    assert "No such file or directory" in ran.err


def test_check_stores_nothing_and_names_classes_without_demand(main, project, reconfigure):
    project = reconfigure(project, "  code: {kind", "  batch: {pools: [code-8b]}\n  code: {kind")
    before = sorted(path.name for path in project.base.rglob("*"))
    ran = main("check", *AT, cwd=project.base)
    assert ran.code == 0, ran.err
    assert "class batch: no demand in any source" in ran.out
    assert sorted(path.name for path in project.base.rglob("*")) == before


def test_the_configuration_and_data_can_be_named_from_elsewhere(floorcast, project, tmp_path):
    """--config, FLOORCAST_CONFIG, and --data for ${FLOORCAST_DATA}: relative paths stay those of the file's folder."""
    text = project.file.read_text()
    project.file.write_text(text.replace("path: trace.parquet", "path: ${FLOORCAST_DATA}/trace.parquet"))
    data = tmp_path / "data"
    data.mkdir()
    shutil.move(project.base / "trace.parquet", data)
    unset = floorcast("ingest", *AT, "--config", str(project.file), cwd=tmp_path)
    assert unset.code == 2
    assert "FLOORCAST_DATA is not set" in unset.err
    named = floorcast("ingest", *AT, "--data", "data", cwd=tmp_path, FLOORCAST_CONFIG=str(project.file))
    assert (named.code, named.err) == (0, "")
    assert project.store_path.exists()
