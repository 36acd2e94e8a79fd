"""A thin client of Prometheus' HTTP API: what to send, what to try again, and what each failure means."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from urllib.parse import unquote

import httpx
from pydantic import BaseModel, Field, ValidationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floorcast.errors import ConfigError, DataError
from floorcast.source import PrometheusSource
from floorcast.units import format_duration
from pipelines.http_answer import retry_after, whole_answer

_SHOWN = 300
"""Characters of a server's message that an error repeats."""

_PATIENCE = timedelta(minutes=2)
"""How long a server may ask us to wait. One that asks for more is asked again by the next run."""

_WHOLE = {"partial_response": "false", "deny_partial_response": "1"}
"""Asks Thanos, then VictoriaMetrics' cluster, for an error in place of part of the data; others pass it over."""


_ADDRESS = re.compile(
    r"(?P<scheme>https?://)(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^:@/?#\s]*))?@)?"
    r"(?P<rest>(?:\[[0-9A-Fa-f:.]+\]|[^:@/?#\[\]\s]+)(?::\d+)?(?:/[^@?#\s]*)?)"
)
"""An address of which it is certain where the password ends, and that holds no key after it."""


class Series(BaseModel):
    """Labels, and pairs of seconds since 1970 and value; NaN and infinities as they came."""

    metric: dict[str, str]
    values: list[tuple[Annotated[float, Field(allow_inf_nan=False)], float]]


class Point(BaseModel):
    """Labels, and a time and value as those of Series."""

    metric: dict[str, str]
    value: tuple[Annotated[float, Field(allow_inf_nan=False)], float]


class _Matrix(BaseModel):
    resultType: Literal["matrix"]  # noqa: N815
    result: list[Series]


class _Vector(BaseModel):
    resultType: Literal["vector"]  # noqa: N815
    result: list[Point]


_Data = TypeVar("_Data", _Matrix, _Vector)


class _Answer(BaseModel, Generic[_Data]):
    status: Literal["success"]
    data: _Data
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815


@dataclass
class _TransientError(Exception):
    """Worth another attempt. Holds what the error says once there are no more."""

    what: str
    remedy: str
    wait: timedelta = timedelta(0)
    """How long the server asks us to wait before the next attempt."""


class PrometheusClient:
    """Queries a source's server. One client serves several threads.

    A request is tried `attempts` times with jittered exponential waits from `backoff_s`, where it timed out, was cut
    off, answered 429 or 5xx, or answered with part of the data only. A `Retry-After` is waited for, unless it is more
    than two minutes: then there is no other attempt. Raises ConfigError where the URL, a certificate or a token file
    cannot be used.
    """

    def __init__(self, source: PrometheusSource, *, attempts: int = 5, backoff_s: float = 0.5) -> None:
        self._source = source
        self._url, login = _api(source)
        self._attempts = attempts
        self._backoff_s = backoff_s
        headers = dict(source.headers)
        # A short header is a tenant's name, and taking it out would garble every message.
        self._secrets = [value for value in headers.values() if len(value) >= 8]
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
            self._secrets.append(token)
        if source.basic_auth:
            login = source.basic_auth.username, source.basic_auth.password
        if login:
            self._secrets.append(login[1])
        self._http = httpx.Client(
            auth=httpx.BasicAuth(*login) if login else None,
            headers=headers,
            verify=self._tls(),
            timeout=source.timeout.total_seconds(),
            limits=httpx.Limits(max_connections=source.concurrency, max_keepalive_connections=source.concurrency),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def samples(self, selector: str, *, end: datetime, span: timedelta) -> list[Series]:
        """The samples as scraped, with their own times, in the `span` up to `end`: no lookback, no extrapolation.

        Raises DataError where the server does not answer with all of them.
        """
        query = f"{selector}[{round(span.total_seconds() * 1000)}ms]"
        return self._post("query", {"query": query} | _time(end), _Answer[_Matrix]).result

    def instant(self, promql: str) -> list[Point]:
        """The query's value now, by the server's clock. Raises DataError as `samples`."""
        return self._post("query", {"query": promql}, _Answer[_Vector]).result

    def query_range(self, promql: str, *, start: datetime, end: datetime, step: timedelta) -> list[Series]:
        """The query's value at `start`, every `step` after it, up to `end`. Raises DataError as `samples`."""
        times = {"start": start.timestamp(), "end": end.timestamp(), "step": step.total_seconds()}
        form = {"query": promql} | {key: f"{value:.3f}" for key, value in times.items()}
        return self._post("query_range", form, _Answer[_Matrix]).result

    def _post(self, path: str, form: dict[str, str], kind: type[_Answer[_Data]]) -> _Data:
        backoff = wait_random_exponential(multiplier=self._backoff_s, max=30)

        def wait_s(state: RetryCallState) -> float:
            error = state.outcome and state.outcome.exception()
            asked = error.wait.total_seconds() if isinstance(error, _TransientError) else 0
            return max(asked, backoff(state))

        retrying = Retrying(
            retry=retry_if_exception_type(_TransientError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_s,
            reraise=True,
        )
        try:
            found: _Data = retrying(self._once, path, form | _WHOLE, kind)
            return found
        except _TransientError as error:
            raise self._error(f"{error.what}, {self._attempts} times in a row", error.remedy) from None

    def _once(self, path: str, form: dict[str, str], kind: type[_Answer[_Data]]) -> _Data:
        try:
            response = whole_answer(
                self._http, "POST", self._url.join(path), within=self._source.timeout, body={"data": form}
            )
        except httpx.TimeoutException:
            waited = format_duration(self._source.timeout)
            raise _TransientError(
                f"no whole answer within {waited}", "raise `timeout`, or shorten `chunk` to ask for less at once"
            ) from None
        except httpx.LocalProtocolError:
            # Its text repeats the header, secret or not.
            raise self._error("a header cannot be sent", "look for line ends in `headers` or the token") from None
        except httpx.RequestError as error:
            if "SSL" in str(error):
                raise self._error(
                    f"no secure connection: {self._scrubbed(str(error))}", "check `tls`: ca, cert and key"
                ) from None
            raise _TransientError(
                f"the connection failed ({self._scrubbed(str(error)) or type(error).__name__})",
                "check `url`, and that the server runs and can be reached from here",
            ) from None
        return self._read(response, kind)

    def _read(self, response: httpx.Response, kind: type[_Answer[_Data]]) -> _Data:
        status = response.status_code
        if status == 429 or status >= 500:
            said, wait = f"the server answered {status}{self._message(response)}", retry_after(response)
            if wait > _PATIENCE:
                raise self._error(
                    f"{said}, and asks to be left alone for {format_duration(wait)}",
                    "let the next run go on from here; lower `concurrency` to ask for less at once",
                )
            raise _TransientError(
                said,
                "look at the server's own log; shorten `chunk` or lower `concurrency` to ask for less at once",
                wait,
            )
        if status != 200:
            raise self._refusal(response)
        try:
            answer = kind.model_validate_json(response.content)
        except ValidationError as error:
            raise self._misread(response, error) from None
        # Prometheus 2.48 to 2.54 puts advice about the query among the warnings.
        warnings = [text for text in answer.warnings if not text.startswith("PromQL info:")]
        if warnings or answer.isPartial:
            said = self._scrubbed("; ".join(warnings)) or "isPartial"
            raise _TransientError(
                f"partial data, refused ({said})", "mend the part of the server that is down; then this is read again"
            )
        return answer.data

    def _refusal(self, response: httpx.Response) -> DataError:
        status = response.status_code
        if status in (401, 403):
            # The body is not shown: what refuses a credential may repeat it.
            return self._error(
                f"the server refused the credentials ({status})",
                "check `basic_auth`, `bearer_token` or `bearer_token_file`, and `headers` for a tenant",
            )
        if status == 405:
            return self._error(
                f"queries may not be posted to the URL (405 at {response.request.url.path})",
                "let a proxy before the server pass POST on to its `query` and `query_range`, which only read; "
                "else set `url` to the server's address",
            )
        if status == 404 or status < 400:
            return self._error(
                f"the URL is not a Prometheus API ({status} at {response.request.url.path})",
                "set `url` to the server's address with its path prefix, as in http://mimir:8080/prometheus",
            )
        return self._error(
            f"the server refused the query ({status}){self._message(response)}",
            "check `match` and `queries`; where the server says too many samples, shorten `chunk`",
        )

    def _misread(self, response: httpx.Response, error: ValidationError) -> Exception:
        [first, *_] = error.errors(include_url=False)
        if first["type"] == "json_invalid":
            if response.content.lstrip().startswith(b"{"):
                return _TransientError("the answer was cut off", "look for a proxy between here and the server")
            return self._error("the answer is not JSON", "set `url` to the server itself, not to its pages or a login")
        place = ".".join(map(str, first["loc"])) or "the answer"
        return self._error(
            f"the answer is not what Prometheus' API promises ({place}: {first['msg']}){self._message(response)}",
            "check that `url` leads to a Prometheus API",
        )

    def _message(self, response: httpx.Response) -> str:
        try:
            body: Any = response.json()
        except ValueError:
            return ""
        said = body.get("error") if isinstance(body, dict) else None
        return f": {self._scrubbed(str(said))}" if said else ""

    def _scrubbed(self, text: str) -> str:
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "***")
        return text[:_SHOWN]

    def _error(self, what: str, remedy: str) -> DataError:
        return DataError(what, where=f"source {self._source.name} ({self._url})", remedy=remedy)

    def _token(self) -> str | None:
        path = self._source.bearer_token_file
        if path is None:
            return self._source.bearer_token
        try:
            return Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"bearer_token_file {path} cannot be read ({type(error).__name__})",
                where=f"source {self._source.name}",
                remedy="check that the file exists and is readable",
            ) from None

    def _tls(self) -> ssl.SSLContext:
        tls = self._source.tls
        try:
            context = ssl.create_default_context(cafile=tls.ca)
            if tls.cert:
                context.load_cert_chain(tls.cert, tls.key)
        except OSError as error:
            raise ConfigError(
                f"the certificates cannot be read ({error.strerror or type(error).__name__})",
                where=f"source {self._source.name}: tls",
                remedy="check that ca, cert and key are PEM files that exist and belong together",
            ) from None
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def address(source: PrometheusSource) -> str:
    """The source's `url` without user and password. Raises ConfigError, which does not repeat it, where it cannot be
    used or may hold a secret elsewhere."""
    return "".join(_parts(source).group("scheme", "rest"))


def _parts(source: PrometheusSource) -> re.Match[str]:
    parts = _ADDRESS.fullmatch(source.url)
    if parts is None:
        raise _unusable(source, "it is not a server's address, with or without a user and password")
    return parts


def _unusable(source: PrometheusSource, fault: str) -> ConfigError:
    return ConfigError(
        f"the URL cannot be used: {fault}",
        where=f"source {source.name}: url",
        remedy="write http://HOST:PORT/PREFIX, and put a user and password into `basic_auth`, a key into `headers`",
    )


def _api(source: PrometheusSource) -> tuple[httpx.URL, tuple[str, str] | None]:
    """Where to ask, and the user and password that `url` names."""
    user, password = _parts(source).group("user", "password")
    try:
        url = httpx.URL(address(source).rstrip("/") + "/api/v1/")
    except httpx.InvalidURL:
        # Its text repeats what it does not understand.
        raise _unusable(source, "its host or port is not valid") from None
    if (url.port or 0) > 65535:
        raise _unusable(source, "its port is above 65535")
    return url, None if user is None else (unquote(user), unquote(password or ""))


def _time(moment: datetime) -> dict[str, str]:
    return {"time": f"{moment.timestamp():.3f}"}
