"""The JSON Schema of a floor schedule. `python -m pipelines.publishers.schema` prints it."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from floorcast.types import SCHEDULE_SCHEMA_VERSION, FloorSchedule


def schedule_json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that every `schedule.json` conforms to."""
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": f"https://floorcast.dev/schemas/schedule-{SCHEDULE_SCHEMA_VERSION}.json",
        **FloorSchedule.model_json_schema(mode="serialization"),
        "title": "floorcast floor schedule",
    }


def schedule_json_schema_text() -> str:
    """The schema as published, ending in a newline."""
    return json.dumps(schedule_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schedule_json_schema_text())
