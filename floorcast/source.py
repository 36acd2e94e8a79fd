"""Where demand comes from: the configuration's `sources`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from floorcast.section import Fraction, Name, Section
from floorcast.units import Duration, UtcTime


class Columns(Section):
    """Which columns of a generic trace hold what."""

    time: str = Field(description="when the request arrived, or when the row's interval began")
    tokens_in: str = Field(description="prompt tokens")
    tokens_out: str = Field(description="generated tokens")
    workload_class: str | None = Field(
        default=None, alias="class", description="what tells the classes apart; `classes` maps its values"
    )
    requests: str | None = Field(default=None, description="count of requests; only with `row_interval`")


class TraceSource(Section):
    """Recorded requests (or sums of them) in files."""

    name: Name = Field(description="what pages, rejected rows and errors call it; unique among the sources")
    kind: Literal["trace"] = Field(description="recorded requests")
    format: Literal["azure", "burstgpt", "mooncake", "servegen", "generic"] = Field(
        description="how the files are laid out; `generic` is any CSV, Parquet or JSON lines with a column mapping"
    )
    path: str = Field(min_length=1, description="the file, or a pattern as in `logs/*.csv.gz`; .gz and .zst are read")
    lengths: str | None = Field(default=None, description="servegen: the file of token lengths")
    start: UtcTime | None = Field(
        default=None,
        description="what time zero of relative timestamps means; burstgpt, mooncake and servegen need it",
    )
    workload_class: str | None = Field(
        default=None,
        alias="class",
        description="the class of every row, or of those that `classes` does not map; azure and mooncake need it",
    )
    classes: dict[str, str] = Field(
        default_factory=dict, description="value of the class column to class; `*` takes the rest"
    )
    clients: dict[str, tuple[int, ...] | Literal["*"]] = Field(
        default_factory=dict, description="servegen: the clients of each class; `*` takes the rest"
    )
    columns: Columns | None = Field(default=None, description="generic: the column mapping")
    row_interval: Duration | None = Field(
        default=None, description="generic: each row is the sum over this interval, not one request"
    )
    max_tokens: int = Field(default=10_000_000, gt=0, description="a request above this is refused as absurd")
    max_reject_share: Fraction = Field(
        default=0.01, ge=0, le=1, description="the import fails where more of the rows cannot be used"
    )

    @model_validator(mode="after")
    def _format_needs(self) -> Self:
        relative = self.format in ("burstgpt", "mooncake", "servegen")
        if relative and self.start is None:
            raise PydanticCustomError(
                "missing_start",
                "format {format} has relative timestamps and needs `start`",
                {"format": self.format, "hint": "add e.g. start: 2026-11-01T00:00:00Z"},
            )
        if self.format == "generic" and self.columns is None:
            raise PydanticCustomError(
                "missing_columns",
                "format generic needs `columns`",
                {"hint": "add columns: {time: ..., tokens_in: ..., tokens_out: ..., class: ...}"},
            )
        if self.format == "servegen" and (self.lengths is None or not self.clients):
            raise PydanticCustomError(
                "missing_lengths",
                "format servegen needs `lengths` and `clients`",
                {"hint": "add lengths: FILE and clients: {large: [5], rest: '*'}"},
            )
        if self.format in ("azure", "mooncake") and self.workload_class is None:
            raise PydanticCustomError(
                "missing_class",
                "format {format} has no class column and needs `class`",
                {"format": self.format, "hint": "add e.g. class: code"},
            )
        return self


class BasicAuth(Section):
    """A user name and a password."""

    username: str = Field(description="the user")
    password: str = Field(description="the password; write ${NAME} to keep it out of the file")


class Tls(Section):
    """Certificates, as paths of PEM files."""

    ca: str | None = Field(default=None, description="who signs the server's certificate; the system's unless given")
    cert: str | None = Field(default=None, description="our own certificate, where the server asks for one")
    key: str | None = Field(default=None, description="the key of `cert`")
    verify: bool = Field(default=True, description="whether the server's certificate is checked")


class Queries(Section):
    """PromQL of the user's own. Each is a rate per second; `$selector` in it becomes the class's label matchers."""

    tokens_in: str = Field(
        description="prompt tokens per second, as in `sum(rate(prompt_tokens_total{$selector}[1m]))`"
    )
    tokens_out: str = Field(description="generated tokens per second")
    requests: str | None = Field(default=None, description="requests per second")
    cached_tokens_in: str | None = Field(
        default=None, description="prompt tokens per second that the prefix cache held, of those in tokens_in"
    )


Label = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
"""The name of a label."""


class PrometheusSource(Section):
    """Token counters of the serving engines, in Prometheus or what speaks its HTTP API."""

    name: Name = Field(description="what pages, findings and errors call it; unique among the sources")
    kind: Literal["prometheus"] = Field(description="a server with Prometheus' HTTP API")
    url: str = Field(pattern=r"^https?://[^\s]+$", description="its address, with the path prefix if there is one")
    preset: Literal["vllm", "sglang", "tgi", "trtllm", "triton"] = Field(
        default="vllm", description="the engine whose metric names are asked for, new and old"
    )
    queries: Queries | None = Field(default=None, description="PromQL in place of the preset's counters")
    match: dict[str, str] = Field(default_factory=dict, description="labels every series must have, beside its class's")
    classes: tuple[str, ...] = Field(
        default=(),
        description="the classes to ask for, where other clusters serve the same models; all unless given",
    )
    copies: tuple[Label, ...] = Field(
        default=(), description="labels that tell two scrapers of one counter apart, which is then counted once"
    )
    distinct: tuple[Label, ...] = Field(
        default=(),
        description="labels that tell two counters apart, although they mostly tell scrapers or ways to a target: "
        "as `job`, where two servers on a host have one `instance`",
    )
    basic_auth: BasicAuth | None = Field(default=None, description="user name and password")
    bearer_token: str | None = Field(default=None, description="a token; write ${NAME} to keep it out of the file")
    bearer_token_file: str | None = Field(default=None, description="a file that holds the token, read at each run")
    headers: dict[str, str] = Field(
        default_factory=dict, description="further headers, such as a tenant's X-Scope-OrgID"
    )
    tls: Tls = Field(default=Tls(), description="certificates")
    timeout: Duration = Field(default=timedelta(seconds=30), description="how long one request may take")
    concurrency: int = Field(default=4, ge=1, le=64, description="requests under way at once")
    history: Duration = Field(default=timedelta(days=28), description="how far back the first run reads")
    chunk: Duration = Field(default=timedelta(hours=2), description="how much time one request asks for at the most")
    scrape_interval: Duration = Field(
        default=timedelta(seconds=15), description="how often the server scrapes; a silence of several is a gap"
    )
    allowed_lateness: Duration = Field(
        default=timedelta(minutes=15),
        description="how late data may still arrive; steps that young are read again",
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.preset == "triton" and self.queries is None:
            raise PydanticCustomError(
                "no_token_counters",
                "preset triton has no token counters of its own",
                {"hint": "add `queries` with the gateway's tokens_in and tokens_out"},
            )
        both = sorted(set(self.copies) & set(self.distinct))
        if both:
            raise PydanticCustomError(
                "copies_and_distinct",
                "label {label} is in both `copies` and `distinct`",
                {"label": both[0], "at": ("distinct",), "hint": "leave it in one of them"},
            )
        given = [self.basic_auth, self.bearer_token, self.bearer_token_file]
        if sum(one is not None for one in given) > 1:
            raise PydanticCustomError(
                "two_credentials",
                "basic_auth, bearer_token and bearer_token_file exclude each other",
                {"hint": "keep one of them"},
            )
        return self


_POSTGRESQL = re.compile(r"postgres(ql)?://([^:@/?#\s]+(:[^:@/?#\s]*)?@)?[^@#\s]+")
"""A URL of which it is certain where the password ends."""


class SqlSource(Section):
    """A gateway's table or log of requests, one row each, read by a query."""

    name: Name = Field(description="what pages, rejected rows and errors call it; unique among the sources")
    kind: Literal["sql"] = Field(description="rows of requests that a query gives")
    database: str | None = Field(
        default=None,
        description="a PostgreSQL, as in postgresql://reader:${PGPASSWORD}@db:5432/litellm; without it DuckDB runs the "
        "query, over read_parquet, read_csv and read_json of files whose paths are relative to this file's folder",
    )
    query: str = Field(
        description="one SELECT of the requests from $start on and before $end, both TIMESTAMPTZ: compare them with "
        "the column that `columns.time` names"
    )
    columns: Columns = Field(description="which of the query's columns hold what")
    workload_class: str | None = Field(
        default=None, alias="class", description="the class of every row, or of those that `classes` does not map"
    )
    classes: dict[str, str] = Field(
        default_factory=dict, description="value of the class column to class; `*` takes the rest"
    )
    max_tokens: int = Field(default=10_000_000, gt=0, description="a request above this is refused as absurd")
    max_reject_share: Fraction = Field(
        default=0.01, ge=0, le=1, description="the import fails where more of a chunk's rows cannot be used"
    )
    timeout: Duration = Field(default=timedelta(minutes=5), description="how long PostgreSQL may work on one query")
    history: Duration = Field(default=timedelta(days=28), description="how far back the first run reads")
    chunk: Duration = Field(default=timedelta(days=1), description="how much time one query asks for at the most")
    allowed_lateness: Duration = Field(
        default=timedelta(minutes=15),
        description="how late rows may still be written, as of requests that take long; younger steps are read again",
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        # All of them of the whole source: the fault of a single key would show its value, and a URL holds a password.
        if self.database is not None and not _POSTGRESQL.fullmatch(self.database):
            raise PydanticCustomError(
                "not_postgresql",
                "only PostgreSQL can be asked, and files without a `database`",
                {
                    "at": ("database",),
                    "hint": "write postgresql://USER:${PASSWORD}@HOST:5432/DATABASE, or leave it out",
                },
            )
        for parameter in ("$start", "$end"):
            if parameter not in self.query:
                raise PydanticCustomError(
                    "reads_everything",
                    "the query does not say {parameter} and would read all there is each time",
                    {
                        "parameter": parameter,
                        "at": ("query",),
                        "hint": f"add WHERE {self.columns.time} >= $start AND {self.columns.time} < $end",
                    },
                )
        if self.columns.requests is not None:
            raise PydanticCustomError(
                "not_requests",
                "each row is one request, so there is no column of counts",
                {"at": ("columns", "requests"), "hint": "let the query give the requests themselves, not sums"},
            )
        if bool(self.classes) != (self.columns.workload_class is not None):
            raise PydanticCustomError(
                "class_not_mapped",
                "`columns.class` and `classes` belong together",
                {
                    "at": ("classes",) if self.classes else ("columns", "class"),
                    "hint": "name the column that tells the classes apart, and the class of each of its values, as in "
                    "classes: {gpt-4o: chat}; or give every row one `class`",
                },
            )
        if not self.classes and self.workload_class is None:
            raise PydanticCustomError(
                "missing_class",
                "nothing says which class the rows are",
                {"hint": "add class: NAME, or columns.class and `classes`"},
            )
        return self


Source = Annotated[TraceSource | PrometheusSource | SqlSource, Field(discriminator="kind")]
