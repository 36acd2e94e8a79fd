"""The API fuzzed against its own description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.core.result import Ok

TOKEN = "known-to-the-fuzzer"
OPERATIONS = (
    "/healthz",
    "/readyz",
    "/v1/floors",
    "/v1/floors/{pool}",
    "/v1/schedule",
    "/v1/decisions",
    "/v1/decisions/{pool}",
    "/v1/explain/{pool}",
    "/v1/publishers",
    "/metrics",
)


@pytest.fixture(scope="module")
def api(serving: Any, board: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that demands a token, as the description says."""
    settings = {"requests_per_s": 1e6}
    with serving(board, tmp_path_factory.mktemp("site"), token=TOKEN, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def described(api: Any) -> Any:
    document = api.get("/openapi.json", authorization=f"Bearer {TOKEN}")
    schema = schemathesis.openapi.from_dict(document.json())
    schema.config.update(base_url=api.web.address)
    return schema


def test_every_operation_is_described(described: Any) -> None:
    assert set(described.raw_schema["paths"]) == set(OPERATIONS)


def test_every_error_described_has_the_one_shape(described: Any) -> None:
    for path, methods in described.raw_schema["paths"].items():
        for status, response in methods["get"]["responses"].items():
            if status.startswith(("4", "5")) and not path.endswith("z"):
                assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorBody"}


@pytest.mark.parametrize("path", OPERATIONS)
def test_no_request_makes_it_fail_or_answer_what_is_not_described(described: Any, path: str) -> None:
    """Checked by schemathesis: no 5xx that is not meant, status, type, headers and body as described, what is needed is
    demanded, methods that are not there are refused."""
    operation = next(o.ok() for o in described.get_all_operations() if isinstance(o, Ok) and o.ok().path == path)
    seen, session = set(), requests.Session()
    session.trust_env = False

    @hypothesis.seed(7)
    @hypothesis.settings(
        max_examples=15 if "{" in path else 5, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy())
    def fuzz(case: Any) -> None:
        answer = case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"}, session=session)
        seen.add(answer.status_code)

    with session:
        fuzz()
    assert seen <= {200, 404, 422, 414}
