"""Errors as the HTTP API tells them: one shape, whatever went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from floorcast.errors import FloorcastError, NotFoundError
from pipelines.service.bodies import ErrorBody, Problem

METHODS = "GET, HEAD"


def problem(
    status: int, what: str, *, where: str = "", remedy: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that says so."""
    body = ErrorBody(error=Problem(status=status, what=what, where=where, remedy=remedy))
    return Response(
        body.model_dump_json(),
        status_code=status,
        media_type="application/json",
        headers={"cache-control": "no-store", **(headers or {})},
    )


def handle_errors(app: FastAPI) -> None:
    """Every error that the application answers with takes that shape."""

    async def ours(_request: Request, error: Exception) -> Response:
        found = error if isinstance(error, FloorcastError) else FloorcastError(str(error))
        status = 404 if isinstance(found, NotFoundError) else 503
        return problem(status, found.what, where=found.where, remedy=found.remedy)

    async def http(_request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = dict(getattr(error, "headers", None) or {})
        match status:
            case 404:
                what, remedy = "nothing is there", "see /openapi.json for the paths; pages start at /index.html"
            case 405:
                what, remedy = (
                    "only GET and HEAD are answered",
                    "what is served is changed by the configuration",
                )
                headers["allow"] = METHODS
            case _:
                what, remedy = HTTPStatus(status).phrase, ""
        return problem(status, what, remedy=remedy, headers=headers)

    async def invalid(_request: Request, error: Exception) -> Response:
        fault = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
        where = " ".join(str(part) for part in fault["loc"])
        return problem(422, str(fault["msg"]).removeprefix("Value error, "), where=where)

    async def unexpected(_request: Request, _error: Exception) -> Response:
        return problem(500, "a fault of floorcast itself", remedy="its log has the trace; report it as a bug")

    app.add_exception_handler(FloorcastError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, unexpected)
