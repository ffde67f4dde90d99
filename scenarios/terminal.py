"""What commands share to show tables and progress; rich is imported where it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over runs on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda done, all_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, all_: bar.update(task, completed=done, total=all_)


def console() -> Console:
    """Where tables go: as wide as the terminal, 120 columns in a pipe."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1

    return Piped(width=None if sys.stdout.isatty() else 120, highlight=False)
