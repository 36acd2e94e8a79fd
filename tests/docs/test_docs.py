"""What the documentation says of the code is checked here, so that neither moves without the other."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import ValidationError

from floorcast import errors
from floorcast.config import Config
from floorcast.parsing import parse_config
from pipelines.cli.main import EPILOG, app

ROOT = Path(__file__).parents[2]
PACKAGES = ("floorcast", "store", "forecasting", "scaling", "dashboards", "pipelines")
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(file for folder in ("docs", "examples", "benchmarks", "deploy") for file in ROOT.glob(f"{folder}/**/*.md")),
    ]
)
CONFIGURATIONS = sorted(
    [*ROOT.glob("examples/**/*.yaml"), *(ROOT / "pipelines" / part / "floorcast.yaml" for part in ("cli", "demo"))]
)
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
WITH_DOCTESTS = [file for file in SOURCES if ">>> " in file.read_text(encoding="utf-8")]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
SHELLS = ("", "sh", "bash", "shell", "console")
FILE_NAME = re.compile(r"\.(py|md|json|yaml|sql|parquet|csv)$")


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def fences(file: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return FENCE.findall(file.read_text(encoding="utf-8"))


def inline(file: Path) -> list[str]:
    return INLINE.findall(FENCE.sub("", file.read_text(encoding="utf-8")))


def command_lines(file: Path) -> list[str]:
    """Every call of floorcast in a shell block or a code span, from its name to the end of the command."""
    lines = [line for language, text in fences(file) if language in SHELLS for line in text.splitlines()] + inline(file)
    return [
        re.split(r"\s[|;&]", found[1])[0]
        for line in lines
        if (found := re.match(r"(?:.*[\s/])?(floorcast [a-z].*)", line.strip()))
    ]


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", GENERATE["PAGES"])
def test_a_generated_page_is_what_the_generator_makes(page: str) -> None:
    committed = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert committed == GENERATE["render"](page), f"regenerate docs/{page}: {GENERATE['COMMAND']}"


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_every_relative_link_leads_somewhere(file: Path) -> None:
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE) if there.suffix == ".md" and anchor else []
        if not there.exists() or (anchor and anchor not in map(slug, headings)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_every_command_and_option_named_exists(file: Path) -> None:
    unknown = []
    for line in command_lines(file):
        name, *rest = line.removeprefix("floorcast ").split()
        known = COMMANDS.get(name)
        options = {"--help", *(opt for param in known.params for opt in param.opts)} if known else set()
        given = [word.partition("=")[0] for word in rest if word.startswith("--")]
        if known is None or not set(given) <= options:
            unknown.append(line)
    assert not unknown


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_every_file_named_exists(file: Path) -> None:
    """Code spans such as `scaling/ladder.py` or `tests/store/`; a star stands for any name."""
    own = "|".join((*PACKAGES, "tests", "docs", "examples", "benchmarks", "deploy"))
    named = [span for span in inline(file) if re.fullmatch(rf"(?:{own})/[\w./*-]*", span)]
    assert [span for span in named if not list(ROOT.glob(span.rstrip("/")))] == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_every_configuration_shown_is_one(file: Path) -> None:
    """A fragment may lack keys, and manifests of Kubernetes are not ours; anything else must be valid."""
    for text in (text for language, text in fences(file) if language == "yaml"):
        document: dict[str, Any] = yaml.safe_load(text)
        if "apiVersion" in document:
            continue
        assert [fault for fault in faults_of(document) if fault["type"] != "missing"] == []


def faults_of(document: object) -> list[Any]:
    try:
        Config.model_validate(document)
    except ValidationError as error:
        return list(error.errors())
    return []


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_every_configuration_key_named_exists(file: Path) -> None:
    """Code spans such as `bounds.max` or `publication.valid_for`, the tail of a key or the whole of it."""
    page = GENERATE["render"]("configuration.md")
    keys = [
        re.sub(r"\[\]|\.NAME", "", key).split(".") for key in re.findall(r"^\| `([\w.\[\]]+)` \|", page, re.MULTILINE)
    ]
    tails = {".".join(key[start:]) for key in keys for start in range(len(key))}
    named = [span for span in inline(file) if re.fullmatch(r"[a-z_]\w*(\.[a-z_]\w*)+", span)]
    suspects = [span for span in named if span.partition(".")[0] in tails and not FILE_NAME.search(span)]
    assert [span for span in suspects if span not in tails] == []


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=name_of)
def test_every_configuration_shipped_is_valid(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert parse_config(text, file=name_of(file), environment={"FLOORCAST_DATA": "/data"}).pools


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_an_example_of_itself(name: str) -> None:
    assert f"## floorcast {name}\n" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.search(rf"Example:\s+floorcast {name}\b", COMMANDS[name].help or "")


def test_every_exit_code_is_documented() -> None:
    ours = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.FloorcastError)
    ]
    documented = set(re.findall(r"\d+", EPILOG))
    assert {str(kind.exit_code) for kind in ours} <= documented
    for kind in ours:
        if kind.exit_code > 1 and kind.__base__ is errors.FloorcastError:
            assert re.search(rf"{kind.__name__} .*\(exit {kind.exit_code}\)", errors.__doc__ or "")


def test_the_layout_in_architecture_is_that_of_the_imports() -> None:
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    said = {package: set(re.findall(r"`(\w+)`", imports)) for package, imports in rows if package in PACKAGES}
    assert said == {package: imports_of(package) for package in PACKAGES}


def imports_of(package: str) -> set[str]:
    """Our other packages that the modules of this one import."""
    found = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {name.partition(".")[0] for name in names}
    return (found & set(PACKAGES)) - {package}


@pytest.mark.parametrize("file", WITH_DOCTESTS, ids=name_of)
def test_examples_in_docstrings_hold(file: Path) -> None:
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def test_the_vocabulary_has_examples_to_run() -> None:
    assert {"floorcast/units.py", "floorcast/columns.py"} <= {name_of(file) for file in WITH_DOCTESTS}
