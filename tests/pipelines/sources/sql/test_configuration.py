"""What a source of kind sql may say, and that no fault shows a password."""

from __future__ import annotations

import pytest

from floorcast.errors import ConfigError
from floorcast.parsing import parse_config
from floorcast.source import SqlSource

TEXT = """\
sources:
  - name: gateway
    kind: sql
    database: postgresql://reader:${SECRET}@db:5432/litellm
    query: SELECT * FROM requests WHERE t >= $start AND t < $end
    columns: {time: t, tokens_in: i, tokens_out: o}
    class: chat
pools:
  chat-70b:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
classes:
  chat: {pools: [chat-70b]}
"""


def parse(text: str, secret: str = "hunter2") -> SqlSource:
    [source] = parse_config(text, file="f.yaml", environment={"SECRET": secret}).sources
    assert isinstance(source, SqlSource)
    return source


def test_the_password_comes_from_the_environment() -> None:
    assert parse(TEXT).database == "postgresql://reader:hunter2@db:5432/litellm"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("postgresql:", "mysql:", "f.yaml:4: sources.0.database: only PostgreSQL"),
        (" AND t < $end", "", r"f.yaml:5: sources.0.query: the query does not say \$end"),
        (
            "tokens_out: o",
            "tokens_out: o, requests: n",
            "f.yaml:6: sources.0.columns.requests: each row is one request",
        ),
        ("class: chat", "classes: {a: chat}", "f.yaml:7: sources.0.classes: .* belong together"),
        ("tokens_out: o", "tokens_out: o, class: k", "f.yaml:6: sources.0.columns.class: .* belong together"),
        ("    class: chat\n", "", "nothing says which class the rows are"),
        ("query:", "querry:", "did you mean `query`"),
    ],
)
def test_each_fault_names_its_line_and_shows_no_password(old: str, new: str, words: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(ConfigError, match=words) as caught:
        parse(TEXT.replace(old, new))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("secret", ["p@ss", "p/ss", "p:ss", "p ss", "p#s@s", "p?ss@"])
def test_a_password_that_must_be_written_otherwise_is_refused_unseen(secret: str) -> None:
    with pytest.raises(ConfigError, match="only PostgreSQL can be asked") as caught:
        parse(TEXT, secret)
    assert secret not in str(caught.value)
