"""What commands share to show tables and progress; rich is imported where it is used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from wattkeeper.live.controller.progress import AttemptProgress
    from wattkeeper.scenarios.spec.variants import RunSpec

REFRESHES: Final = 10
LIVE_REFRESHES: Final = 1
"""So many times a second bars are drawn; a live run may last for days."""


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over runs on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda done, all_: None
        return
    with _bars(REFRESHES) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, all_: bars.update(task, completed=done, total=all_)


@contextmanager
def trainings(
    title: str, *, live: bool
) -> Iterator[tuple[Callable[[int, int], None], Callable[[RunSpec, AttemptProgress], None]]]:
    """Progress over runs, and what a live one does.

    On a terminal there is a bar for each attempt that is under way; in a pipe a line for each one
    that ended.
    """
    if not sys.stderr.isatty():
        yield lambda done, all_: None, _say_ended
        return
    with _bars(LIVE_REFRESHES if live else REFRESHES) as bars:
        runs = bars.add_task(title, total=None)
        tasks: dict[tuple[str, int], TaskID] = {}

        def watch(spec: RunSpec, seen: AttemptProgress) -> None:
            key = seen.job_id, seen.attempt
            if seen.ended:
                if key in tasks:
                    bars.remove_task(tasks.pop(key))
                return
            bars.update(runs, description=f"{title}: {spec.variant}, seed {spec.seed}")
            text = f"  {_doing(seen)}"
            if key not in tasks:
                tasks[key] = bars.add_task(text, total=seen.max_epochs)
            bars.update(tasks[key], description=text, completed=seen.epoch, total=seen.max_epochs)

        yield lambda done, all_: bars.update(runs, completed=done, total=all_), watch


def _bars(refreshes: float) -> Progress:
    """Bars on the terminal that are gone in the end, drawn so many times a second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True,
                    refresh_per_second=refreshes)  # fmt: skip


def _say_ended(spec: RunSpec, seen: AttemptProgress) -> None:
    """A line for an attempt that ended; that nobody reads it any more is no harm to the run."""
    if not seen.ended:
        return
    energy = "" if seen.energy_j is None else f", {seen.energy_j:,.0f} J"
    epochs = count(seen.epoch, "epoch")
    took = f"after {epochs}, {seen.time_s:,.1f} s{energy}"
    why = f": {seen.message}" if seen.message else ""
    line = f"{spec.variant}, seed {spec.seed}: {_doing(seen)} {took}{why}"
    with suppress(OSError):
        print(" ".join(line.split()), file=sys.stderr, flush=True)


def _doing(seen: AttemptProgress) -> str:
    """What an attempt does, with what, and where."""
    limit = "" if seen.power_limit_w is None else f", {seen.power_limit_w:g} W"
    metric = "" if seen.metric is None or seen.ended else f", metric {seen.metric:.4g}"
    where = f"{seen.gpu_type} {seen.gpus}".rstrip()
    return (
        f"{seen.job_id}, attempt {seen.attempt} (batch size {seen.batch_size}{limit}, {where}): "
        f"{seen.state}{metric}"
    )


def console() -> Console:
    """Where tables go: as wide as the terminal, 120 columns in a pipe."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1

    return Piped(width=None if sys.stdout.isatty() else 120, highlight=False)
