"""The top-level packages have generic names, which a dependency could shadow. Two guards, and the wheel."""

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def shadowing(installed: Iterable[Distribution]) -> set[str]:
    ours = {*PACKAGES, *(f"{name}.py" for name in PACKAGES)}
    return {
        f"{distribution.name}: {file}"
        for distribution in installed
        if distribution.name != "floorcast"
        for file in distribution.files or ()
        if file.parts[0] in ours
    }


def test_no_other_distribution_ships_a_file_under_our_names() -> None:
    assert not shadowing(distributions())


def test_a_dependency_that_ships_a_store_package_would_be_noticed(tmp_path: Path) -> None:
    info = tmp_path / "intruder-1.0.dist-info"
    info.mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").touch()  # some finders leave out files that are not there
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: intruder\nVersion: 1.0\n")
    (info / "RECORD").write_text("store/__init__.py,,\nintruder-1.0.dist-info/METADATA,,\n")
    assert shadowing(distributions(path=[str(tmp_path)])) == {"intruder: store/__init__.py"}


def test_the_installed_command_resolves_every_package_under_one_root() -> None:
    """Run from `/`, where the checkout is not on the path by accident."""
    script = Path(sys.executable).with_name("floorcast")
    interpreter = script.read_text().splitlines()[0].removeprefix("#!")
    code = "import importlib, json, sys; print(json.dumps([importlib.import_module(n).__file__ for n in sys.argv[1:]]))"
    found = subprocess.run(
        [interpreter, "-c", code, *PACKAGES], cwd="/", capture_output=True, text=True, check=True, timeout=120
    )
    roots = {Path(file).parent.parent for file in json.loads(found.stdout)}
    assert roots == {ROOT}


def test_the_command_answers_from_anywhere() -> None:
    script = Path(sys.executable).with_name("floorcast")
    answer = subprocess.run([script, "--help"], cwd="/", capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.startswith("Usage: floorcast")


def test_every_package_is_listed_and_only_these() -> None:
    """A new top-level folder with code must be decided on: in the wheel, or not."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == {*PACKAGES, "benchmarks"} & folders
    assert set(PACKAGES) <= folders


@pytest.mark.parametrize(
    "needed",
    [
        "store/migrations/0001_initial.sql",
        "dashboards/templates/index.html",
        "dashboards/assets/site.css",
        "pipelines/cli/floorcast.yaml",
        "pipelines/demo/floorcast.yaml",
    ],
)
def test_the_wheel_holds_the_data_files_that_the_code_reads(wheel: zipfile.ZipFile, needed: str) -> None:
    assert needed in wheel.namelist()


def test_the_wheel_holds_no_tests_and_no_top_level_strangers(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {*PACKAGES, "floorcast-0.1.0.dist-info"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built by the build backend itself, without an isolated environment and so without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return zipfile.ZipFile(folder / built.stdout.split()[-1])


def test_the_lock_names_no_host_and_pins_everything() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert not [line for line in lines if "://" in line or "index-url" in line or "find-links" in line]
    assert all("==" in pin for pin in pins)
    locked = {pin.split("==")[0] for pin in pins}
    wanted = {line.split(">")[0].split("=")[0].split("<")[0] for line in PROJECT["project"]["dependencies"]}
    assert wanted <= locked
