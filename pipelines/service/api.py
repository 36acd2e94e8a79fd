"""The HTTP API over the board: `create_app`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request, Response, Security
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from floorcast import __version__
from floorcast.errors import ConfigError
from floorcast.service import Service, is_loopback
from floorcast.units import parse_time
from pipelines.publishers.accuracy import ACCURACY_FILE
from pipelines.service.board import Board
from pipelines.service.bodies import (
    DecisionsBody,
    ErrorBody,
    ExplanationBody,
    FloorBody,
    FloorsBody,
    HealthBody,
    PoolDecisionBody,
    PublishersBody,
)
from pipelines.service.documents import Document, Documents, respond
from pipelines.service.explaining import decision_of, explanation, schedule_document, schedule_of
from pipelines.service.guard import Guard
from pipelines.service.health import Health
from pipelines.service.metrics import CONTENT_TYPE, exposition, registry_of
from pipelines.service.pages import Pages
from pipelines.service.problems import handle_errors

DESCRIPTION = """\
Floors and decisions of every pool, as of the last tick, from memory. Every answer has an `ETag`, and
`floorcast-validity` and `floorcast-version` in its head. Errors have one shape. A number that is not known is left out.
"""
HEADERS = {
    "etag": {"schema": {"type": "string"}, "description": "send it back as If-None-Match: 304 while nothing changed"},
    "floorcast-validity": {
        "schema": {"type": "string", "enum": ["valid", "expired", "missing"]},
        "description": "of the publication; unless `valid`, floors are held and never fall",
    },
    "floorcast-version": {"schema": {"type": "integer"}, "description": "of the schedule in force, where there is one"},
    "floorcast-decided-at": {"schema": {"type": "string", "format": "date-time"}, "description": "of the last tick"},
}
PoolName = Annotated[str, PathParameter(description="a pool's name", examples=["chat-70b"])]


def create_app(
    board: Callable[[], Board], settings: Service, *, site: Path, token: Callable[[], str | None]
) -> FastAPI:
    """The application: what `board()` says, and the pages of the folder `site`, beside which `accuracy.json` lies.

    `token` gives the bearer token that holds now. One is demanded wherever there is one, and always where the server
    listens on more than the loopback or a token file is named. Raises ConfigError where it is to listen elsewhere and
    there is none.
    """
    if not is_loopback(settings.host) and token() is None:
        raise ConfigError(
            f"listening on {settings.host} demands a bearer token, and none is set",
            where="service",
            remedy=f"name a `token_file`, set {settings.token_env}, or listen on 127.0.0.1",
        )
    app = FastAPI(
        title="floorcast",
        summary="Minimum replicas of an LLM inference fleet",
        description=DESCRIPTION,
        version=__version__,
        # Their scripts come from other hosts.
        docs_url=None,
        redoc_url=None,
        responses={status: {"model": ErrorBody} for status in (401, 421, 422, 429, 503)},
    )
    handle_errors(app)
    documents, health = Documents(), Health(board)
    app.include_router(_probes(health))
    secured = [Security(HTTPBearer(auto_error=False))]
    app.include_router(_api(board, documents), dependencies=secured)
    app.include_router(_metrics(board, documents, site.parent / ACCURACY_FILE), dependencies=secured)
    app.mount("/", Pages(site))
    app.add_middleware(
        Guard,
        host=settings.host,
        hosts=settings.hosts,
        token=token,
        demand_token=settings.token_file is not None,
        max_request_bytes=settings.max_request_bytes,
        requests_per_s=settings.requests_per_s,
        timeout_s=settings.timeout.total_seconds(),
    )
    return app


def _probes(health: Health) -> APIRouter:
    router = APIRouter(tags=["health"])
    failing: dict[int | str, dict[str, Any]] = {503: {"model": HealthBody, "description": "it is not; says why"}}

    def answer(found: HealthBody) -> Response:
        headers = {"cache-control": "no-store"}
        status = 200 if found.ok else 503
        return Response(found.model_dump_json(), status, headers=headers, media_type="application/json")

    @router.get("/healthz", response_model=HealthBody, responses=failing, summary="Is the process alive and ticking?")
    async def healthz() -> Response:
        return answer(health.alive())

    @router.get("/readyz", response_model=HealthBody, responses=failing, summary="Are decisions made on a valid base?")
    async def readyz() -> Response:
        return answer(health.ready())

    return router


def _metrics(board: Callable[[], Board], documents: Documents, accuracy: Path) -> APIRouter:
    router = APIRouter(tags=["health"])
    registry = registry_of(board, accuracy)
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}

    @router.get("/metrics", response_class=Response, responses={200: {"content": content}}, summary="For Prometheus")
    async def metrics(request: Request) -> Response:
        now = board()
        made = await documents.get(now, "metrics", lambda _: Document.of(exposition(registry), CONTENT_TYPE))
        return respond(request, made, now)

    return router


def _api(board: Callable[[], Board], documents: Documents) -> APIRouter:
    ok: dict[int | str, dict[str, Any]] = {200: {"headers": HEADERS}, 304: {"description": "as it was"}}
    one = ok | {404: {"model": ErrorBody, "description": "no such pool, time or schedule"}}
    router = APIRouter(prefix="/v1", tags=["floors and decisions"])

    async def answer(
        request: Request, name: str, make: Callable[[Board], BaseModel | Document], *, lasting: object = None
    ) -> Response:
        def rendered(now: Board) -> Document:
            made = make(now)
            return made if isinstance(made, Document) else Document.of(made.model_dump_json(by_alias=True).encode())

        now = board()
        return respond(request, await documents.get(now, name, rendered, lasting=lasting), now)

    @router.get("/floors", response_model=FloorsBody, responses=ok, summary="The floor in force of every pool")
    async def floors(request: Request) -> Response:
        def make(now: Board) -> FloorsBody:
            return FloorsBody(floors={pool: each.floor for pool, each in now.decisions.items()}, **FloorsBody.of(now))

        return await answer(request, "floors", make)

    @router.get("/floors/{pool}", response_model=FloorBody, responses=one, summary="The floor in force of one pool")
    async def floor(request: Request, pool: PoolName) -> Response:
        def make(now: Board) -> FloorBody:
            found = decision_of(now, pool)
            return FloorBody(pool=pool, floor=found.floor, source=found.floor_source, **FloorBody.of(now))

        decision_of(board(), pool)
        return await answer(request, f"floors/{pool}", make)

    @router.get("/schedule", responses=one | {200: {"headers": HEADERS}}, summary="The floor schedule in force")
    async def schedule(request: Request) -> Response:
        return await answer(request, "schedule", schedule_document, lasting=schedule_of(board()))

    @router.get(
        "/decisions", response_model=DecisionsBody, responses=ok, summary="What the overlay wants of every pool"
    )
    async def decisions(request: Request) -> Response:
        return await answer(request, "decisions", DecisionsBody.on)

    @router.get(
        "/decisions/{pool}", response_model=PoolDecisionBody, responses=one, summary="A decision and its making"
    )
    async def decision(request: Request, pool: PoolName) -> Response:
        decision_of(board(), pool)
        return await answer(request, f"decisions/{pool}", lambda now: PoolDecisionBody.of(decision_of(now, pool)))

    @router.get(
        "/explain/{pool}",
        response_model=ExplanationBody,
        responses=one | {200: {"headers": HEADERS, "content": {"text/plain": {"schema": {"type": "string"}}}}},
        summary="Why a floor is what it is",
    )
    async def explain(
        request: Request,
        pool: PoolName,
        at: Annotated[
            str | None,
            Query(
                description="the time asked about, UTC unless it has a zone", json_schema_extra={"format": "date-time"}
            ),
        ] = None,
        format: Annotated[
            Literal["json", "text"] | None, Query(description="`text` unless `Accept` asks for it otherwise")
        ] = None,
    ) -> Response:
        text = format == "text" or (format is None and request.headers.get("accept", "").startswith("text/plain"))
        now = board()
        made = explanation(now, pool, _time(at))
        document = (
            Document.of(made.text.encode(), "text/plain; charset=utf-8")
            if text
            else Document.of(made.body.model_dump_json().encode())
        )
        return respond(request, document, now, vary="accept, accept-encoding")

    @router.get("/publishers", response_model=PublishersBody, responses=ok, summary="What each publisher last did")
    async def publishers(request: Request) -> Response:
        def make(now: Board) -> Document:
            return Document.of(PublishersBody(outcomes=now.outcomes).model_dump_json(exclude_none=True).encode())

        return await answer(request, "publishers", make)

    return router


def _time(at: str | None) -> datetime | None:
    try:
        return None if at is None else parse_time(at)
    except ValueError as error:
        raise RequestValidationError([{"loc": ("query", "at"), "msg": str(error), "type": "time"}]) from None
