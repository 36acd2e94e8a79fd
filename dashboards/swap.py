"""Putting a folder in the place of another so that a reader sees the old one or the new one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floorcast.errors import PublishError

MARKER = ".floorcast-site"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_ABANDONED_AFTER_S = 3600


@contextmanager
def replaced_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder beside `out`; on success it takes the place of `out`, which is then deleted.

    Raises PublishError where `out` is something other than an earlier site or an empty folder, since it would be
    deleted, or where it cannot be written. On any failure `out` stays as it was.
    """
    _refuse_foreign(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(out)
        fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            fresh.chmod(0o755)
            (fresh / MARKER).touch()
            yield fresh
            _exchange(fresh, out)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise PublishError(
            f"cannot write there ({error.strerror})",
            where=str(out),
            remedy="choose a folder that can be written, on a disk with room",
        ) from error


def _refuse_foreign(out: Path) -> None:
    if not out.exists() and not out.is_symlink():
        return
    ours = out.is_dir() and not out.is_symlink() and ((out / MARKER).exists() or not any(out.iterdir()))
    if not ours:
        raise PublishError(
            "exists and is not a dashboard made by floorcast, so it is left alone",
            where=str(out),
            remedy="choose another output folder, or move this one away",
        )


def _remove_abandoned(out: Path) -> None:
    """Delete what builds that were killed left beside `out`."""
    for folder in out.parent.glob(f".{out.name}-*"):
        if (folder / MARKER).exists() and time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S:
            shutil.rmtree(folder, ignore_errors=True)


def _exchange(fresh: Path, out: Path) -> None:
    if not out.exists():
        fresh.rename(out)
        return
    if not _exchanged_at_once(fresh, out):
        old = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        out.rename(old)
        fresh.rename(out)
        shutil.rmtree(old, ignore_errors=True)


def _exchanged_at_once(fresh: Path, out: Path) -> bool:
    """Swap two folders in one step of the kernel. False where system or file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(out), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
        return False
    raise OSError(code, os.strerror(code), str(out))
