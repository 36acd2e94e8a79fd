"""The configuration's `service`: how `floorcast serve` decides and what it listens on."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from floorcast.section import Section
from floorcast.units import Duration, format_duration

LiveSignal = Literal[
    "tokens_in_per_s",
    "tokens_out_per_s",
    "waiting_requests",
    "waiting_tokens_in",
    "waiting_tokens_out",
    "kv_cache_usage",
    "ttft_p95_s",
    "ttft_p95_s_per_1k_prompt",
    "itl_p95_s",
    "gpu_utilization",
    "ready",
    "starting",
    "draining",
    "requested",
]
"""What a query of the user's own may give."""
SHORTEST_TICK = timedelta(milliseconds=100)
LONGEST_TICK = timedelta(minutes=5)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


class LiveQuery(Section):
    """PromQL that gives one live signal of any number of pools at once."""

    promql: str = Field(
        min_length=1,
        description="gives a series for each pool, whose label `pool` names it, as in "
        '`label_replace(avg by (modelName) (DCGM_FI_DEV_GPU_UTIL) / 100, "pool", "$1", "modelName", "(.*)")`',
    )
    source: str | None = Field(
        default=None, description="the Prometheus source to ask; the only one there is unless given"
    )


class GrpcTls(Section):
    """TLS of the external scaler, as paths of PEM files."""

    cert: str = Field(description="its certificate")
    key: str = Field(description="the key of `cert`")
    client_ca: str | None = Field(
        default=None,
        description="who signs the certificates that clients must show; without it any client is served, on a loopback "
        "address alone",
    )


class Service(Section):
    """One process that decides each tick, and serves what it decided."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; any other than a loopback address demands a token",
    )
    port: int = Field(default=8480, ge=0, le=65535, description="port of HTTP; 0 takes a free one")
    tick: Duration = Field(default=timedelta(seconds=15), description="how often the overlay decides, from 100ms to 5m")
    state_dir: str | None = Field(
        default=None,
        description="folder of what it remembers from tick to tick, its own; `service` in `output.dir` unless given",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="names that clients may call it by; on a loopback address its own are always among them, elsewhere "
        "any name will do unless some are given",
    )
    token_file: str | None = Field(
        default=None, description="a file that holds the bearer token, read again when it changes"
    )
    token_env: str = Field(
        default="FLOORCAST_TOKEN",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="without `token_file`, the environment variable that holds the bearer token",
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="port of KEDA's external scaler, on the same host; none unless given. It asks for no token: any "
        "other than a loopback address demands `grpc_tls.client_ca`",
    )
    grpc_tls: GrpcTls | None = Field(default=None, description="TLS of the external scaler; plain unless given")
    max_request_bytes: int = Field(default=16_384, ge=1_024, description="a longer request is refused")
    requests_per_s: float = Field(
        default=1_000, gt=0, description="requests a second of one client above which they are refused"
    )
    timeout: Duration = Field(default=timedelta(seconds=10), description="how long a request may take")
    queries: dict[LiveSignal, LiveQuery] = Field(
        default_factory=dict, description="PromQL in place of what is asked for a live signal otherwise"
    )

    @model_validator(mode="after")
    def _ticks(self) -> Self:
        if not SHORTEST_TICK <= self.tick <= LONGEST_TICK:
            raise PydanticCustomError(
                "bad_tick",
                "tick {tick} is not from {low} to {high}",
                {
                    "tick": format_duration(self.tick),
                    "low": format_duration(SHORTEST_TICK),
                    "high": format_duration(LONGEST_TICK),
                    "at": ("tick",),
                    "hint": "metrics are rarely younger than 15s",
                },
            )
        if self.timeout < timedelta(milliseconds=100):
            raise PydanticCustomError(
                "no_time", "timeout is under 100ms", {"at": ("timeout",), "hint": "give a request a few seconds"}
            )
        return self

    @model_validator(mode="after")
    def _only_known_clients(self) -> Self:
        mutual = self.grpc_tls is not None and self.grpc_tls.client_ca is not None
        if self.grpc_port is not None and not mutual and not is_loopback(self.host):
            raise PydanticCustomError(
                "open_grpc",
                "gRPC on {host} would serve any client: it has no token",
                {
                    "host": self.host,
                    "at": ("grpc_port",),
                    "hint": "give `grpc_tls` with `client_ca`, so that clients show a certificate, or listen on "
                    "127.0.0.1",
                },
            )
        return self
