"""The bearer token: from a file, read again when it changes, or from the environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)


def token_from(file: Path | None, variable: str, environment: Mapping[str, str]) -> Callable[[], str | None]:
    """What gives the token that holds now: the file's, where one is named, else the variable's; None where it is empty.

    A file that cannot be read for a while keeps the token that was read last.
    """
    if file is None:
        fixed = environment.get(variable, "").strip() or None
        return lambda: fixed
    return _FileToken(file)


class _FileToken:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._token: str | None = None
        self._seen: tuple[int, int, int] | None = None

    def __call__(self) -> str | None:
        try:
            found = os.stat(self._file)  # noqa: PTH116 - once a request; a Path makes an object more
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._token = self._file.read_text(encoding="utf-8").strip() or None
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            if self._seen is not None:
                logger.warning("the token file cannot be read, its last token holds: %s", type(error).__name__)
                self._seen = None
        return self._token
