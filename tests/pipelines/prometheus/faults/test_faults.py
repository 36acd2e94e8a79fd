"""What each fault between us and the server comes to. No fault becomes a zero, and none is passed over in silence."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from floorcast.errors import ConfigError, DataError, FloorcastError
from pipelines.sources.prometheus import Chunk, import_prometheus
from pipelines.sources.prometheus.client import PrometheusClient

pytestmark = pytest.mark.server

STEP = timedelta(minutes=5)
SELECTOR = '{__name__="vllm:prompt_tokens",model_name="qwen-8b"}'

PASSING = ["reset", "hang up", "delay", "truncate", "cut json", "not http", "trickle", "warnings", "isPartial"]
PASSING += ["429", "500", "502", "503", "504", "429 retry 1", "503 retry date", "429 retry soon"]

LASTING = {
    "reset": "the connection failed",
    "hang up": "the connection failed",
    "delay": "no whole answer within 1s",
    "trickle": "no whole answer within 1s",
    "truncate": "the connection failed",
    "cut json": "the answer was cut off",
    "not http": "the connection failed",
    "429": "the server answered 429",
    "500": "the server answered 500",
    "503": "the server answered 503",
    "warnings": "partial data, refused (store gateway down)",
    "isPartial": "partial data, refused",
}

FATAL = {
    "401": ("refused the credentials (401)", "`bearer_token`"),
    "403": ("refused the credentials (403)", "`bearer_token`"),
    "404": ("not a Prometheus API (404", "path prefix"),
    "405": ("queries may not be posted to the URL (405", "POST"),
    "302": ("not a Prometheus API (302", "path prefix"),
    "400": ("refused the query (400): told", "`match`"),
    "422": ("refused the query (422): told", "`chunk`"),
    "html": ("not JSON", "login"),
    "empty body": ("not JSON", "login"),
    "status error": ("compaction failed", "Prometheus API"),
    "vector": ("data.resultType", "Prometheus API"),
    "other json": ("not what Prometheus' API promises", "Prometheus API"),
    "text value": ("data.result.0.values.0.1", "Prometheus API"),
    "429 retry 121": ("asks to be left alone for 2m1s", "next run"),
    "503 retry far date": ("asks to be left alone for 1h30m", "next run"),
}


@pytest.fixture
def ask(proxy: Any, world: Any, make_source: Any) -> Any:
    """Ask for ten minutes of a series through the proxy, three attempts at the most."""

    def call(**keys: Any) -> Any:
        source = make_source(proxy.url, **{"timeout": "1s"} | keys)
        with PrometheusClient(source, attempts=3, backoff_s=0.01) as client:
            return client.samples(SELECTOR, end=world.start + 2 * STEP, span=2 * STEP)

    return call


IN_WORDS = {
    "reset": "connection reset",
    "hang up": "connection closed without an answer",
    "delay": "no answer within `timeout`",
    "trickle": "the answer trickles in for longer than `timeout`",
    "truncate": "the answer ends before its Content-Length",
    "cut json": "the JSON ends early",
    "not http": "the answer is not HTTP",
    "warnings": "partial data, with `warnings` (Prometheus federations, Thanos, Mimir)",
    "isPartial": "partial data, with `isPartial` (VictoriaMetrics)",
    "302": "redirected to a login (302)",
    "html": "a page instead of JSON",
    "empty body": "an empty answer",
    "status error": "status `error` within a 200",
    "vector": "a vector where a matrix was asked for",
    "other json": "JSON of another kind",
    "text value": "a value that is text",
    "429 retry 1": "429 with Retry-After in seconds",
    "503 retry date": "503 with Retry-After as a date",
    "429 retry soon": "429 with a Retry-After that cannot be read",
    "503 retry far date": "503 with a Retry-After in an hour and a half",
    "429 retry 121": "429 with a Retry-After above two minutes",
    "advice": "advice about the query among the `warnings`",
}
ONCE, ALWAYS, AT_ONCE = "Faults that pass", "Faults that last", "Answers that another attempt cannot mend"


def words(fault: str) -> str:
    return IN_WORDS.get(fault, f"the server answers {fault}")


def seen(error: FloorcastError) -> str:
    """As printed, without what differs between systems."""
    what = re.sub(r"(the connection failed) \(.*\)", r"\1 (...)", error.what).replace(": told ", ": (its message)")
    what = re.sub(r"(no secure connection): .*", r"\1: (...)", what)
    return f"exit {error.exit_code}: {what}; remedy: {error.remedy}"


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again_and_nothing_is_lost(proxy: Any, ask: Any, fault: str, fault_table: Any) -> None:
    undisturbed = ask()
    proxy.requests.clear()
    proxy.faults = [fault]
    assert ask() == undisturbed
    assert sum(len(series.values) for series in undisturbed) == 40
    assert len(proxy.requests) == 2
    fault_table.saw(ONCE, f"{words(fault)}, once", f"asked {len(proxy.requests)} times; nothing is lost", "")


@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_is_an_error_after_all_attempts(proxy: Any, ask: Any, fault: str, fault_table: Any) -> None:
    proxy.always = fault
    with pytest.raises(DataError) as caught:
        ask()
    assert LASTING[fault] in caught.value.what
    assert "3 times in a row" in caught.value.what
    assert "source prod" in caught.value.where
    assert caught.value.remedy
    assert len(proxy.requests) == 3
    happens = "asked as often as allowed, 5 times; then the import ends there"
    fault_table.saw(ALWAYS, words(fault), happens, seen(caught.value).replace("3 times", "5 times"))


@pytest.mark.parametrize("fault", FATAL)
def test_what_will_not_pass_is_an_error_at_once(proxy: Any, ask: Any, fault: str, fault_table: Any) -> None:
    proxy.always = fault
    with pytest.raises(DataError) as caught:
        ask()
    what, remedy = FATAL[fault]
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    assert len(proxy.requests) == 1
    fault_table.saw(AT_ONCE, words(fault), "asked once; the import ends there", seen(caught.value))


@pytest.mark.parametrize(("fault", "least_s"), [("429 retry 1", 1), ("503 retry date", 1), ("429 retry soon", 0)])
def test_a_server_is_left_alone_for_as_long_as_it_asks(proxy: Any, ask: Any, fault: str, least_s: float) -> None:
    """The date is one second after that of the answer: the server's clock decides, not ours, a year off."""
    proxy.faults = [fault]
    began = time.monotonic()
    assert ask()
    assert least_s <= time.monotonic() - began < least_s + 0.9


def test_advice_about_a_query_is_no_partial_answer(proxy: Any, ask: Any) -> None:
    proxy.always = "advice"
    assert sum(len(series.values) for series in ask()) == 40


def test_thanos_and_victoria_metrics_are_asked_for_all_or_nothing(proxy: Any, ask: Any) -> None:
    ask()
    assert b"partial_response=false" in proxy.requests[0]
    assert b"deny_partial_response=1" in proxy.requests[0]


def test_paths_of_credentials_are_relative_to_the_configuration(
    proxy: Any, certificates: Any, tmp_path: Path, world: Any, write_project: Any
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "token").write_text("from-beside")
    for name in ("ca", "cert", "key"):
        (folder / f"{name}.pem").write_bytes(Path(getattr(certificates, name)).read_bytes())
    tls = {name: f"{name}.pem" for name in ("ca", "cert", "key")}
    project = write_project(folder, {"chat": "m"}, url=proxy.url, bearer_token_file="token", tls=tls)
    [anchored] = project.config.sources
    with PrometheusClient(anchored, attempts=1) as client:
        client.samples(SELECTOR, end=world.start + STEP, span=STEP)
    assert b"authorization: bearer from-beside" in proxy.requests[0].lower()
    assert anchored.tls.cert == str(folder / "cert.pem")


def test_nothing_that_listens_is_an_error(make_source: Any, world: Any) -> None:
    client = PrometheusClient(make_source("http://127.0.0.1:9"), attempts=2, backoff_s=0.01)
    with client, pytest.raises(DataError, match="the connection failed"):
        client.samples(SELECTOR, end=world.start, span=STEP)


@pytest.mark.parametrize("fault", ["400", "422", "500", "401", "reset"])
@pytest.mark.parametrize(
    "keys",
    [
        {"bearer_token": "s3cret-t0ken"},
        {"basic_auth": {"username": "me", "password": "s3cret-t0ken"}},
        {"headers": {"Authorization": "Token s3cret-t0ken"}},
    ],
)
def test_an_error_tells_no_secret(proxy: Any, ask: Any, fault: str, keys: dict[str, Any]) -> None:
    """Even where the server repeats the header that held it."""
    proxy.always = fault
    with pytest.raises(DataError) as caught:
        ask(**keys)
    assert "s3cret" not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


def test_credentials_and_tenant_are_sent(proxy: Any, ask: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    ask(bearer_token="plain", headers={"X-Scope-OrgID": "tenant-7"})
    ask(bearer_token_file=str(tmp_path / "token"))
    ask(basic_auth={"username": "aladdin", "password": "opensesame"})
    sent = [request.decode().lower() for request in proxy.requests]
    assert "authorization: bearer plain\r\n" in sent[0]
    assert "x-scope-orgid: tenant-7\r\n" in sent[0]
    assert "authorization: bearer from-file\r\n" in sent[1]
    assert "authorization: basic ywxhzgrpbjpvcgvuc2vzyw1l\r\n" in sent[2]


UNUSABLE = {
    "`bearer_token_file` is not there": (
        {"bearer_token_file": "/no/such/token"},
        "bearer_token_file /no/such/token cannot be read",
    ),
    "a file of `tls` is not there": ({"tls": {"ca": "/no/such/ca.pem"}}, "certificates cannot be read"),
    "the port of `url` is too high": ({"url": "http://host:99999"}, "the URL cannot be used"),
    "the port of `url` is no number": ({"url": "http://host:port"}, "the URL cannot be used"),
}
BY_CONFIGURATION = "What cannot be sent"
UNTRUSTED, TWO_LINES = "the server's certificate is signed by a stranger", "a token of two lines"


@pytest.mark.parametrize("fault", UNUSABLE)
def test_what_cannot_be_used_is_named(make_source: Any, fault: str, fault_table: Any) -> None:
    keys, said = UNUSABLE[fault]
    with pytest.raises(ConfigError, match=said) as caught:
        PrometheusClient(make_source(**{"url": "http://host"} | keys))
    fault_table.saw(BY_CONFIGURATION, fault, "nothing is asked", seen(caught.value))


def test_certificates_on_both_sides(
    tls_proxy: Any, certificates: Any, make_source: Any, world: Any, fault_table: Any
) -> None:
    both = {"ca": certificates.ca, "cert": certificates.cert, "key": certificates.key}

    def ask(**tls: Any) -> Any:
        with PrometheusClient(make_source(tls_proxy.url, tls=tls), attempts=2, backoff_s=0.01) as client:
            return client.samples(SELECTOR, end=world.start + STEP, span=STEP)

    assert len(ask(**both)) == 2
    assert len(ask(**both | {"ca": None, "verify": False})) == 2
    with pytest.raises(DataError, match="no secure connection") as caught:
        ask(**both | {"ca": None})
    assert "`tls`" in caught.value.remedy
    fault_table.saw(BY_CONFIGURATION, UNTRUSTED, "the query is not sent", seen(caught.value))
    with pytest.raises(DataError, match=r"no secure connection|the connection failed"):
        ask(ca=certificates.ca)


def test_a_header_that_cannot_be_sent_is_an_error_without_its_text(ask: Any, fault_table: Any) -> None:
    with pytest.raises(DataError, match="a header cannot be sent") as caught:
        ask(bearer_token="two\nlines")
    assert "lines" not in caught.value.what
    fault_table.saw(BY_CONFIGURATION, TWO_LINES, "nothing is sent", seen(caught.value))


def test_chunks_before_a_failure_stand_and_the_import_ends_there(
    proxy: Any, world: Any, classes: Any, make_source: Any, prometheus: str
) -> None:
    """A fault in the third of four chunks: two chunks, an error, and no step of the rest."""

    def read(url: str) -> Any:
        return import_prometheus(
            make_source(url, chunk="1h"),
            classes={"steady": classes["steady"]},
            step=STEP,
            start=world.start,
            end=world.start + timedelta(hours=4),
        )

    expected = list(read(prometheus))
    arriving = read(proxy.url)
    chunks = list(islice(arriving, 2))
    proxy.always = "422"
    with pytest.raises(DataError, match="refused the query"):
        next(arriving)
    assert list(arriving) == []
    assert [chunk.end for chunk in chunks] == [chunk.end for chunk in expected[:2]]
    for ours, theirs in zip(chunks, expected, strict=False):
        assert_frame_equal(ours.demand, theirs.demand, check_exact=True)


def test_faults_here_and_there_leave_no_trace(
    proxy: Any, world: Any, classes: Any, make_source: Any, prometheus: str
) -> None:
    """One of every three requests fails somehow, eight at once; the steps are those of a quiet network."""

    def read(url: str) -> list[Chunk]:
        source = make_source(url, chunk="2h", timeout="1s", concurrency=8)
        end = world.start + timedelta(hours=6)
        return list(import_prometheus(source, classes=classes, step=STEP, start=world.start, end=end))

    faults = [fault for fault in PASSING if fault not in ("delay", "trickle")]
    proxy.faults = [fault for one in faults for fault in (one, "pass", "pass")]
    ours, theirs = read(proxy.url), read(prometheus)
    assert not proxy.faults
    assert_frame_equal(pl.concat([c.demand for c in ours]), pl.concat([c.demand for c in theirs]), check_exact=True)


def test_the_newest_step_waits_for_a_sample_after_it_or_for_the_lateness(
    world: Any, classes: Any, make_source: Any, prometheus: str
) -> None:
    """Scrapes of `steady` stop at 34:07:30 (one before, at 34:07:07 or so), every 30 s till then."""
    stop = world.start + timedelta(hours=34, minutes=7, seconds=30)

    def last_end(now: Any, lateness: str) -> Any:
        source = make_source(prometheus, allowed_lateness=lateness)
        chunks = import_prometheus(
            source, classes={"steady": classes["steady"]}, step=STEP, start=stop - timedelta(hours=3), end=now
        )
        return [chunk.end for chunk in islice(chunks, 10)][-1]

    five = stop - timedelta(minutes=2, seconds=30)
    assert last_end(five + timedelta(seconds=1), "15m") == five - STEP
    assert last_end(five + timedelta(seconds=40), "15m") == five
    assert last_end(five + 2 * STEP, "15m") == five
    assert last_end(five + 2 * STEP, "7m") == five
    assert last_end(five + 2 * STEP, "4m") == five + STEP


def test_progress_counts_the_chunks(world: Any, classes: Any, make_source: Any, prometheus: str) -> None:
    seen: list[tuple[int, int]] = []
    arguments = {"classes": {"idle": classes["idle"]}, "step": STEP, "start": world.start}
    end = world.start + timedelta(hours=5, minutes=1)
    chunks = list(
        import_prometheus(
            make_source(prometheus, chunk="2h"), end=end, progress=lambda done, of: seen.append((done, of)), **arguments
        )
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [chunk.end - chunk.start for chunk in chunks] == [24 * STEP, 24 * STEP, 12 * STEP]
    assert not list(import_prometheus(make_source(prometheus), end=world.start, **arguments))


def test_the_page_of_faults_holds_no_others(fault_table: Any) -> None:
    fault_table.holds_only(ONCE, [f"{words(fault)}, once" for fault in PASSING])
    fault_table.holds_only(ALWAYS, map(words, LASTING))
    fault_table.holds_only(AT_ONCE, map(words, FATAL))
    fault_table.holds_only(BY_CONFIGURATION, [*UNUSABLE, UNTRUSTED, TWO_LINES])
