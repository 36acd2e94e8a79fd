"""Replacing a file so that a reader sees the old content or the new, never half of either."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from floorcast.errors import PublishError


def replace_file(path: Path, content: str | bytes) -> None:
    """Write `content`, text as UTF-8, to `path` in one step that survives a crash; makes the folder.

    Raises PublishError where the folder cannot be written to.
    """
    # Not tempfile: its files are private to the user, and the readers of a publication are other users.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise PublishError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            remedy="make the folder writable and leave free space on its disk, or change `output.dir`",
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
