from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from pipelines.publishers.schedule import write_schedule
from pipelines.publishers.schema import schedule_json_schema

COMMITTED = Path(__file__).parents[3] / "docs" / "schedule.schema.json"


def test_the_committed_schema_is_the_one_the_code_makes():
    printed = subprocess.run(
        [sys.executable, "-m", "pipelines.publishers.schema"], capture_output=True, text=True, check=True
    ).stdout
    assert COMMITTED.read_text() == printed, (
        "regenerate it: .venv/bin/python -m pipelines.publishers.schema > docs/schedule.schema.json"
    )


def test_the_schema_is_itself_valid_and_says_what_it_is():
    schema = schedule_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].endswith("schedule-1.json")
    assert schema["description"] == "All floors of one publication."


@pytest.mark.parametrize(
    "edit", [{"schema": 2}, {"mode": "force"}, {"content_hash": "sha256:short"}, {"surprise": 1}, {"pools": None}]
)
def test_the_schema_refuses_what_the_reader_refuses(tmp_path, fleet, edit):
    document = json.loads(write_schedule(fleet, tmp_path).read_text())
    jsonschema.validate(document, schedule_json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | edit, schedule_json_schema())


def test_the_schema_lies_beside_the_schedule(tmp_path, fleet):
    write_schedule(fleet, tmp_path)
    assert (tmp_path / "schedule.schema.json").read_text() == COMMITTED.read_text()
