"""KEDA's external scaler over gRPC: floors and decisions as a metric, read off the board.

A `ScaledObject` names this server in a trigger of type `external` or `external-push`, and in the trigger's metadata:

- `pool`: whose number it wants; the ScaledObject's own name unless given;
- `value`: `floor` (unless given) or `decision`, what the overlay wants above it;
- `tolerance`: of the cluster's autoscalers, 0.1 unless given; 0 sends the bare number.

The metric's target is 1, so that KEDA's default, the average over replicas, asks for as many replicas as the value.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc import aio

from floorcast.errors import ConfigError
from pipelines.publishers.tolerance import TOLERANCE, through_tolerance
from pipelines.service.board import Board
from pipelines.service.generated import externalscaler_pb2 as messages

SERVICE = "externalscaler.ExternalScaler"
METRIC = "floorcast-replicas"

_LOOK_S = 1.0
"""How often an open stream looks for a change."""

_MOST_STREAMS = 2000
"""Open streams above which new ones are refused: KEDA holds one for each trigger of type `external-push`."""

_MOST_CALLS = 3000
"""Calls at once, open streams among them, above which new ones are refused."""

_Context = aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class Tls:
    """Files in PEM. With `client_ca` only clients that show a certificate of it are served."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True)
class _Asked:
    pool: str
    value: str
    tolerance: float


class Scaler:
    """A running server. `port` is the one that it listens on."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, thread: threading.Thread):
        self.port = port
        self._loop = loop
        self._stopping = stopping
        self._thread = thread

    def stop(self) -> None:
        """End open streams, let calls in flight end within a second, and give the port back."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(timeout=5)


def start_scaler(
    board: Callable[[], Board | None],
    address: str,
    *,
    tls: Tls | None = None,
    most_calls: int = _MOST_CALLS,
    most_streams: int = _MOST_STREAMS,
) -> Scaler:
    """Serve on `address`, as in `127.0.0.1:9090` (port 0: any), from a thread of its own.

    `board` gives the newest board, or None before the first tick. Raises ConfigError where the address cannot be
    listened on or a file of `tls` cannot be used.
    """
    credentials = None if tls is None else _credentials(tls)
    begun: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stopping = asyncio.Event()
        # Without SO_REUSEPORT a second server on the port is told so, in place of taking half of the calls.
        server = aio.server(options=[("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=most_calls)
        server.add_generic_rpc_handlers((_handlers(_Servicer(board, stopping, most_streams)),))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
            await server.start()
        except RuntimeError as error:
            begun.set_exception(error)
            return
        begun.set_result((port, asyncio.get_running_loop(), stopping))
        await stopping.wait()
        await server.stop(grace=1)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="external scaler", daemon=True)
    thread.start()
    try:
        port, loop, stopping = begun.result()
    except RuntimeError as error:
        raise ConfigError(
            f"gRPC cannot listen there ({error})",
            where=address,
            remedy="free the port, or set `service.grpc_port` to another; with TLS, check that key and certificate "
            "are a pair",
        ) from None
    return Scaler(port, loop, stopping, thread)


class _Servicer:
    """The four calls of KEDA. A pool that is not known is NOT_FOUND; before the first tick all are UNAVAILABLE: an
    answer of 0 would scale the fleet in."""

    def __init__(self, board: Callable[[], Board | None], stopping: asyncio.Event, most_streams: int) -> None:
        self._board = board
        self._stopping = stopping
        self._most_streams = most_streams
        self._streams = 0

    async def is_active(self, ref: messages.ScaledObjectRef, context: _Context) -> messages.IsActiveResponse:
        return messages.IsActiveResponse(result=await self._value(ref, context) > 0)

    async def stream_is_active(
        self, ref: messages.ScaledObjectRef, context: _Context
    ) -> AsyncIterator[messages.IsActiveResponse]:
        """Whether the pool is active, at once and whenever it changes."""
        if self._streams >= self._most_streams:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._most_streams} streams are open")
        self._streams += 1
        # Its stub asks for a class where any callable will do.
        context.add_done_callback(self._ended)  # type: ignore[arg-type]
        said: bool | None = None
        while not self._stopping.is_set():
            active = await self._value(ref, context) > 0
            if active != said:
                yield messages.IsActiveResponse(result=active)
                said = active
            try:
                await asyncio.wait_for(self._stopping.wait(), timeout=_LOOK_S)
            except TimeoutError:
                continue

    def _ended(self, _context: _Context) -> None:
        self._streams -= 1

    async def get_metric_spec(self, ref: messages.ScaledObjectRef, context: _Context) -> messages.GetMetricSpecResponse:
        await self._value(ref, context)
        spec = messages.MetricSpec(metricName=METRIC, targetSizeFloat=1.0)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: messages.GetMetricsRequest, context: _Context) -> messages.GetMetricsResponse:
        if request.metricName not in ("", METRIC):
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"no metric {request.metricName}: use {METRIC}")
        value = await self._value(request.scaledObjectRef, context)
        return messages.GetMetricsResponse(
            metricValues=[messages.MetricValue(metricName=METRIC, metricValueFloat=float(value))]
        )

    async def _value(self, ref: messages.ScaledObjectRef, context: _Context) -> int:
        """What is asked for, past the autoscaler's tolerance."""
        try:
            asked = _asked(ref)
        except ValueError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        board = self._board()
        if board is None or not board.decisions:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "floorcast has not decided anything yet: ask again")
        decision = board.decisions.get(asked.pool)
        if decision is None:
            near = difflib.get_close_matches(asked.pool, board.decisions, n=1)
            known = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(board.decisions)[:20])}"
            which = "of the trigger" if "pool" in ref.scalerMetadata else ", the ScaledObject's own name"
            await _abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"floorcast knows no pool {asked.pool} ({which}): {known}; name it with `pool` in the metadata",
            )
        number = decision.floor if asked.value == "floor" else max(decision.desired, decision.floor)
        return through_tolerance(number, asked.tolerance)


def _asked(ref: messages.ScaledObjectRef) -> _Asked:
    """What the trigger's metadata ask for. Raises ValueError, which says what is wrong."""
    metadata = ref.scalerMetadata
    value = metadata.get("value", "floor")
    if value not in ("floor", "decision"):
        raise ValueError(f"`value: {value}` in the trigger's metadata is neither floor nor decision")
    written = metadata.get("tolerance", str(TOLERANCE))
    try:
        tolerance = float(written)
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance < 1:
        raise ValueError(f"`tolerance: {written}` in the trigger's metadata is not a share such as 0.1")
    return _Asked(pool=metadata.get("pool", ref.name), value=value, tolerance=tolerance)


async def _abort(context: _Context, code: grpc.StatusCode, details: str) -> NoReturn:
    await context.abort(code, details)
    raise AssertionError(details)


def _handlers(servicer: _Servicer) -> grpc.GenericRpcHandler:
    ref, request = messages.ScaledObjectRef.FromString, messages.GetMetricsRequest.FromString
    unary = grpc.unary_unary_rpc_method_handler
    calls = {
        "IsActive": unary(servicer.is_active, ref, messages.IsActiveResponse.SerializeToString),
        "StreamIsActive": grpc.unary_stream_rpc_method_handler(
            servicer.stream_is_active, ref, messages.IsActiveResponse.SerializeToString
        ),
        "GetMetricSpec": unary(servicer.get_metric_spec, ref, messages.GetMetricSpecResponse.SerializeToString),
        "GetMetrics": unary(servicer.get_metrics, request, messages.GetMetricsResponse.SerializeToString),
    }
    return grpc.method_handlers_generic_handler(SERVICE, calls)


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    try:
        key, cert = tls.key.read_bytes(), tls.cert.read_bytes()
        client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", where=str(error.filename), remedy="name readable PEM files"
        ) from None
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=client_ca, require_client_auth=client_ca is not None
    )
