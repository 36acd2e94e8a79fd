"""Progress on a terminal, nothing in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

T = TypeVar("T")


def track(items: Iterable[T], *, total: int, label: str) -> Iterator[T]:
    """Yield the items with a bar on standard error that goes away when done."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, total=total, description=label)


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar as that of `track`, moved by calling it with how many of how many are done."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
