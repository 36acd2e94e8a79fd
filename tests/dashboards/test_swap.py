"""A reader sees the old folder or the new one; nothing foreign is ever replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from dashboards.swap import MARKER, replaced_folder
from floorcast.errors import PublishError


def write(out: Path, text: str) -> None:
    with replaced_folder(out) as folder:
        (folder / "page").write_text(text)


def test_a_folder_is_made_and_then_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    write(out, "old")
    (out / "stale").touch()
    write(out, "new")
    assert sorted(p.name for p in out.iterdir()) == [MARKER, "page"]
    assert (out / "page").read_text() == "new"
    assert [p.name for p in out.parent.iterdir()] == ["site"], "nothing is left beside it"


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "site"
    write(out, "old")
    with pytest.raises(TypeError), replaced_folder(out) as folder:
        (folder / "page").write_text(None)  # type: ignore[arg-type]
    assert (out / "page").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_a_reader_never_finds_the_folder_missing(tmp_path: Path) -> None:
    out = tmp_path / "site"
    write(out, "0")
    seen: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                seen.append((out / "page").read_text())
            except OSError as error:
                seen.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 60):
        write(out, str(number))
    done.set()
    reader.join()
    assert len(seen) > 60
    assert [text for text in seen if not text.isdigit()] == []


@pytest.mark.parametrize("kind", ["folder with files", "file", "link"])
def test_something_that_is_no_dashboard_is_left_alone(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "home"
    if kind == "file":
        out.write_text("precious")
    else:
        real = out if kind == "folder with files" else tmp_path / "real"
        real.mkdir()
        (real / "precious").touch()
        if kind == "link":
            out.symlink_to(real)
    with pytest.raises(PublishError, match="left alone") as caught:
        write(out, "new")
    assert caught.value.where == str(out)
    assert caught.value.remedy
    assert out.is_file() or (out / "precious").exists()


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    write(tmp_path / "site", "x")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "x")
    assert (tmp_path / "empty" / "page").read_text() == "x"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="cannot write there") as caught:
        write(tmp_path / "file" / "site", "x")
    assert str(tmp_path) in str(caught.value)


def test_what_a_killed_build_left_is_removed_later(tmp_path: Path) -> None:
    """Only folders of ours, and only when too old to be a build at work."""
    for name, marked, age_s in ((".site-a", True, 7200), (".site-b", True, 0), (".site-c", False, 7200)):
        folder = tmp_path / name
        folder.mkdir()
        if marked:
            (folder / MARKER).touch()
        then = folder.stat().st_mtime - age_s
        os.utime(folder, (then, then))
    write(tmp_path / "site", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".site-b", ".site-c", "site"]
