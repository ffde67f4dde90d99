"""Progress bars and the console of commands; rich is imported where it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from wattkeeper.live.controller.progress import AttemptProgress
    from wattkeeper.scenarios.spec.variants import RunSpec

STDERR: Final = 2
REFRESHES: Final = 10
LIVE_REFRESHES: Final = 1
"""Refreshes of bars per second; a live run may last for days."""


def open_streams() -> None:
    """Open the standard streams that are closed, lest a file that is opened gets their numbers.

    What would be written to a closed standard error goes to the standard output.

    Raises:
        EnvironmentLacks: If the standard output is closed.
    """
    closed = [stream is None for stream in (sys.stdin, sys.stdout, sys.stderr)]
    for _ in range(sum(closed)):
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        if sys.stdout is not None:
            os.dup2(sys.stdout.fileno(), STDERR)
        sys.stderr = open(STDERR, "w", buffering=1, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        raise EnvironmentLacks(
            "the standard output is closed: let it go to a file, or to /dev/null"
        )


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over runs on a terminal; none in a pipe."""
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
    """Progress over runs, and over the attempts of live runs.

    On a terminal each running attempt has a bar; in a pipe each ended attempt gets a line.
    """
    if not sys.stderr.isatty():
        yield lambda done, all_: None, _print_ended
        return
    with _bars(LIVE_REFRESHES if live else REFRESHES) as bars:
        runs = bars.add_task(title, total=None)
        tasks: dict[tuple[str, int], TaskID] = {}

        def watch(spec: RunSpec, attempt: AttemptProgress) -> None:
            key = attempt.job_id, attempt.attempt
            if attempt.ended:
                if key in tasks:
                    bars.remove_task(tasks.pop(key))
                return
            bars.update(runs, description=f"{title}: {spec.variant}, seed {spec.seed}")
            text = f"  {_describe(attempt)}"
            if key not in tasks:
                tasks[key] = bars.add_task(text, total=attempt.max_epochs)
            bars.update(
                tasks[key], description=text, completed=attempt.epoch, total=attempt.max_epochs
            )

        yield lambda done, all_: bars.update(runs, completed=done, total=all_), watch


def _bars(refreshes: float) -> Progress:
    """Bars on the terminal that disappear in the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True,
                    refresh_per_second=refreshes)  # fmt: skip


def _print_ended(spec: RunSpec, attempt: AttemptProgress) -> None:
    """Print a line for an ended attempt; a closed pipe does not end the run."""
    if not attempt.ended:
        return
    energy = "" if attempt.energy_j is None else f", {attempt.energy_j:,.0f} J"
    epochs = count(attempt.epoch, "epoch")
    duration = f"after {epochs}, {attempt.time_s:,.1f} s{energy}"
    why = f": {attempt.message}" if attempt.message else ""
    line = f"{spec.variant}, seed {spec.seed}: {_describe(attempt)} {duration}{why}"
    with suppress(OSError):
        print(" ".join(line.split()), file=sys.stderr, flush=True)


def _describe(attempt: AttemptProgress) -> str:
    """An attempt's job, configuration, GPU and state."""
    limit = "" if attempt.power_limit_w is None else f", {attempt.power_limit_w:g} W"
    metric = "" if attempt.metric is None or attempt.ended else f", metric {attempt.metric:.4g}"
    where = f"{attempt.gpu_type} {attempt.gpus}".rstrip()
    return (
        f"{attempt.job_id}, attempt {attempt.attempt} (batch size {attempt.batch_size}{limit}, "
        f"{where}): {attempt.state}{metric}"
    )


def console() -> Console:
    """The console of tables: as wide as the terminal, 120 columns in a pipe."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1

    return Piped(width=None if sys.stdout.isatty() else 120, highlight=False)
