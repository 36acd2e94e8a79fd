"""The docs page of the service's faults."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.closed_loop.document import faults_page


def test_the_docs_page_is_of_the_results() -> None:
    results = json.loads(
        (Path(__file__).parents[2] / "benchmarks" / "results" / "closed_loop.json").read_text(encoding="utf-8")
    )
    page = Path(__file__).parents[2] / "docs" / "reference" / "service-faults.md"
    assert page.read_text(encoding="utf-8") == faults_page(results), "run python -m benchmarks.closed_loop.document"
    assert results["summary"]["rows_failed"] == 0
    assert results["detail"]["simulated_minutes"] >= 180
