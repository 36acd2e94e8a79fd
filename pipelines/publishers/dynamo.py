"""NVIDIA Dynamo: the minimum endpoints of a running planner, `GET` and `PATCH /v1/min-endpoints` of its control API.

The planner keeps a minimum until it is restarted, and then begins with that of its own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floorcast.config import Config
from floorcast.errors import PublishError
from floorcast.publisher import DYNAMO_FIELDS, DynamoPublisher
from floorcast.units import format_duration
from pipelines.http_answer import TooLongError, retry_after, whole_answer
from pipelines.publishers.outcome import Outcome, Wanted

PATH = "/v1/min-endpoints"

_LONGEST_WAIT = timedelta(seconds=30)
"""How long a planner may ask us to wait; one that asks for more is tried again by the next run."""

_LARGEST = 64 * 1024
"""Bytes of an answer that are read."""

_SHOWN = 300
"""Characters of a planner's message that an outcome repeats."""


@dataclass
class _TransientError(Exception):
    """Worth another attempt; `wait_s` is what the planner asks for."""

    what: str
    wait_s: float = 0.0


@dataclass
class _RefusedError(Exception):
    """The planner says that the request itself is wrong."""

    what: str


class DynamoPlanner:
    """One planner. A minimum that is higher than the one wanted is lowered only where it is `ours`."""

    def __init__(self, entry: DynamoPublisher, config: Config, *, ours: Mapping[str, int]) -> None:
        self.name = entry.label
        self._entry = entry
        self._fields = {name: DYNAMO_FIELDS[pool.role] for name, pool in config.pools.items()}
        self._ours = ours

    def publish(self, wanted: Sequence[Wanted], *, apply: bool, now: datetime) -> list[Outcome]:
        """One outcome per pool. All minimums go in one request, which the planner takes whole or not at all; where it
        takes them not, each goes alone. Raises PublishError where the planner cannot be asked."""
        limits = httpx.Limits(max_connections=1)
        with httpx.Client(timeout=self._entry.timeout.total_seconds(), limits=limits, trust_env=False) as client:
            try:
                there = self._ask(client, "GET")
            except _RefusedError as error:
                raise self._error(
                    f"it refuses to be asked: {error.what}", "set `url` to the planner's control API itself"
                ) from None
            outcomes = {one.pool: self._before(one, there, now) for one in wanted}
            changed = [one for one in wanted if outcomes[one.pool].did == "would_change"]
            if apply and changed:
                outcomes |= self._put(client, changed, outcomes)
        return [outcomes[one.pool] for one in wanted]

    def _before(self, wanted: Wanted, there: Mapping[str, Any], now: datetime) -> Outcome:
        """What would be done, from what is there."""
        field = self._fields[wanted.pool]
        common = {"publisher": self.name, "pool": wanted.pool, "at": now}
        found = there.get(field)
        if not isinstance(found, int) or isinstance(found, bool):
            mode = f"runs in mode {there['mode']}" if "mode" in there else "has other fields"
            note = f"the planner {mode} and has no {field}; name the pools of this planner under `pools`"
            return Outcome(did="failed", note=note, **common)
        # The planner refuses 0 of a prefill or decode worker.
        least = 0 if field == "min_endpoint" else 1
        after = max(wanted.replicas, least)
        note = f"the planner keeps at least {least}" if after != wanted.replicas else ""
        if found == after:
            return Outcome(did="unchanged", before=found, after=found, note=note, **common)
        if after < found and wanted.only_raises:
            note = f"floor {after}; the schedule has expired, so nothing is lowered"
            return Outcome(did="left_above", before=found, after=found, note=note, **common)
        if after < found != self._ours.get(wanted.pool):
            mine = self._ours.get(wanted.pool)
            note = (
                f"floor {after}; {found} was not set by floorcast"
                + (f", which set {mine}" if mine is not None else "")
                + ", so it is left; lower it by hand to hand it over"
            )
            return Outcome(did="left_above", before=found, after=found, note=note, **common)
        return Outcome(did="would_change", before=found, after=after, note=note, **common)

    def _put(self, client: httpx.Client, wanted: Sequence[Wanted], would: Mapping[str, Outcome]) -> dict[str, Outcome]:
        body = {self._fields[one.pool]: would[one.pool].after for one in wanted}
        try:
            there = self._ask(client, "PATCH", body)
        except _RefusedError as error:
            if len(wanted) > 1:
                return {pool: out for one in wanted for pool, out in self._put(client, [one], would).items()}
            pool = wanted[0].pool
            refused = {"did": "failed", "after": None, "note": f"the planner refused it: {error.what}"}
            return {pool: would[pool].model_copy(update=refused)}
        except PublishError as error:
            # It may have been taken all the same: the next run looks.
            lost = {"did": "failed", "after": None, "note": error.what}
            return {one.pool: would[one.pool].model_copy(update=lost) for one in wanted}
        outcomes = {}
        for one in wanted:
            outcome = would[one.pool]
            now_there = there.get(self._fields[one.pool])
            done: dict[str, object] = {"did": "applied"}
            if now_there != outcome.after:
                done = {"did": "failed", "after": None, "note": f"the planner answered with {now_there} in its place"}
            outcomes[one.pool] = outcome.model_copy(update=done)
        return outcomes

    def _ask(self, client: httpx.Client, method: str, body: object = None) -> dict[str, Any]:
        """The planner's answer. Raises _RefusedError for 400, 409 and 422, PublishError for all else."""
        backoff = wait_random_exponential(multiplier=0.2, max=10)

        def wait_s(state: RetryCallState) -> float:
            error = state.outcome and state.outcome.exception()
            return max(error.wait_s if isinstance(error, _TransientError) else 0.0, backoff(state))

        retrying = Retrying(
            retry=retry_if_exception_type(_TransientError),
            stop=stop_after_attempt(self._entry.attempts),
            wait=wait_s,
            reraise=True,
        )
        try:
            return retrying(self._once, client, method, body)
        except _TransientError as error:
            raise self._error(
                f"{error.what}, {self._entry.attempts} times in a row",
                "check that the planner runs, that its control_api_port is not 0, and that `url` leads to it",
            ) from None

    def _once(self, client: httpx.Client, method: str, body: object) -> dict[str, Any]:
        try:
            response = whole_answer(
                client,
                method,
                self._entry.url + PATH,
                within=self._entry.timeout,
                most_bytes=_LARGEST,
                body={"json": body},
            )
        except TooLongError:
            raise self._error("the answer is far too long", "set `url` to the planner's control API itself") from None
        except httpx.TimeoutException:
            raise _TransientError(f"no whole answer within {format_duration(self._entry.timeout)}") from None
        except httpx.RequestError as error:
            raise _TransientError(f"the connection failed ({error or type(error).__name__})") from None
        status = response.status_code
        said = f"the planner answered {status}{_message(response)}"
        if status == 429 or status >= 500:
            wait = retry_after(response)
            if wait > _LONGEST_WAIT:
                raise self._error(f"{said}, and asks to wait {format_duration(wait)}", "it is tried again by then")
            raise _TransientError(said, wait.total_seconds())
        if status in (400, 409, 422):
            raise _RefusedError(_message(response).removeprefix(": ") or str(status))
        if status != 200:
            raise self._error(said, "set `url` to the planner's control API, as in http://127.0.0.1:9086")
        try:
            document = response.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._error("the answer is not a JSON object", "set `url` to the planner's control API itself")
        return document

    def _error(self, what: str, remedy: str) -> PublishError:
        return PublishError(what, where=f"publisher {self.name} ({self._entry.url})", remedy=remedy)


def _message(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return ""
    said = body.get("error") if isinstance(body, dict) else None
    return f": {str(said)[:_SHOWN]}" if said else ""
