"""The page on HTTP shows what the service answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
BLOCK = re.compile(r"^```console\n\$ (curl .*)\n(?:.*\n)*?```$", re.MULTILINE)


def test_each_transcript_is_what_curl_prints(served: Any) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed (apt-get install curl)")

    def shown(block: re.Match[str]) -> str:
        command = block[1]
        run = command.replace("localhost:8480", f"localhost:{served.port}").replace("curl ", "curl --noproxy '*' ", 1)
        done = subprocess.run(run, shell=True, capture_output=True, text=True, check=True)
        lines = [line.rstrip() for line in done.stdout.splitlines() if not line.startswith("date: ")]
        return "\n".join(["```console", f"$ {command}", *lines, "```"])

    text = PAGE.read_text(encoding="utf-8")
    assert len(BLOCK.findall(text)) == 9
    true = BLOCK.sub(shown, text)
    if os.environ.get("UPDATE_GOLDENS"):
        PAGE.write_text(true, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == true, "UPDATE_GOLDENS=1 .venv/bin/pytest -n0 tests/pipelines/service"
