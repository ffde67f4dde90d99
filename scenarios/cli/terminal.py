"""All output of commands: lines, tables and progress bars; rich is imported where it is used."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.policies.printable import printable
from wattkeeper.scenarios.spec.wording import count

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.text import Text

    from wattkeeper.live.controller.progress import AttemptProgress
    from wattkeeper.scenarios.spec.variants import RunSpec

STDERR: Final = 2
SILENCE_S: Final = 20.0
"""A command that is at work says so after so much silence, s."""
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
def reserve_output() -> Iterator[None]:
    """Inside, only `write` and tables get to the standard output.

    What others print, such as policies, goes to the standard error, so that JSON stays JSON.
    """
    _activity.output = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _activity.output = None


def drop_unwritten() -> None:
    """Let vanish what cannot be written to the standard streams: a closed pipe, a full disk.

    Python would write it again as it ends, and change the exit code.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Write a text to the standard output, or the standard error; control characters escaped.

    A standard error that is closed or full does not end the command: its exit code still tells.
    """
    _activity.wrote_s = time.monotonic()
    text = printable(text) + end
    if not err:
        click.echo(text, file=_activity.output, nl=False)  # noqa: TID251
        return
    with suppress(OSError, ValueError):
        click.echo(text, err=True, nl=False)  # noqa: TID251


def write_results(folder: Path) -> None:
    """Write where results are; the page comes last."""
    write(f"\nResults: {folder}\nPage: {folder / 'report.html'}")


class _Activity:
    """What a command is doing, for its signs of life.

    Attributes:
        text: The state of its work.
        wrote_s: When it last wrote something, s.
        has_bars: Whether bars on the terminal show that it is at work.
        output: Its standard output, where that is reserved.
    """

    def __init__(self) -> None:
        self.text = ""
        self.wrote_s = time.monotonic()
        self.has_bars = False
        self.output: TextIO | None = None


_activity = _Activity()


@contextmanager
def signs_of_life() -> Iterator[None]:
    """Context manager: print a line to stderr whenever nothing was printed for `SILENCE_S`."""
    from threading import Event, Thread

    began_s = _activity.wrote_s = time.monotonic()
    _activity.text = ""
    over = Event()

    def watch() -> None:
        while not over.wait(max(0.0, _activity.wrote_s + SILENCE_S - time.monotonic())):
            now_s = time.monotonic()
            if now_s < _activity.wrote_s + SILENCE_S:
                continue
            _activity.wrote_s = now_s
            if not _activity.has_bars and _has_reader():
                text = f", {_activity.text}" * bool(_activity.text)
                _write_line(f"wattkeeper: at work for {now_s - began_s:,.0f} s{text}")

    # An interruption of the first or last lines here must not leave a thread to wait for.
    thread = Thread(target=watch, name="wattkeeper-signs-of-life", daemon=True)
    try:
        thread.start()
        yield
    finally:
        over.set()
        with suppress(RuntimeError):  # it was interrupted as it started
            thread.join()


def _has_reader() -> bool:
    """Whether a line on the standard error does not wait until somebody reads it."""
    try:
        return bool(select.select([], [sys.stderr], [], 0)[1])
    except (OSError, ValueError):
        return False


def _write_line(text: str) -> None:
    write(" ".join(text.split()), err=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over runs on a terminal; in a pipe, `signs_of_life` tell how far they are."""
    if not sys.stderr.isatty():
        yield partial(_note_progress, title)
        return
    with _bars(REFRESHES) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, all_: bars.update(task, completed=done, total=all_)


@contextmanager
def trainings(
    title: str, *, live: bool
) -> Iterator[tuple[Callable[[int, int, str], None], Callable[[RunSpec, AttemptProgress], None]]]:
    """Progress over runs, with the one at work, and over the attempts of live runs.

    On a terminal each running attempt has a bar; in a pipe each ended attempt gets a line.
    """
    if not sys.stderr.isatty():
        yield partial(_note_progress, title), _print_ended
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
            bars.update(runs, description=f"{title}: {spec.variant.name}, seed {spec.seed}")
            text = f"  {_describe(attempt)}"
            if key not in tasks:
                tasks[key] = bars.add_task(text, total=attempt.max_epochs)
            bars.update(
                tasks[key], description=text, completed=attempt.epoch, total=attempt.max_epochs
            )

        def show(done: int, all_: int, at_work: str) -> None:
            named = f"{title}: {at_work}" if at_work else title
            bars.update(runs, description=named, completed=done, total=all_)

        yield show, watch


@contextmanager
def _bars(refreshes: float) -> Iterator[Progress]:
    """Bars on the terminal that disappear in the end."""
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn

    with show_bars(MofNCompleteColumn(), TimeElapsedColumn(), refreshes=refreshes) as bars:
        yield bars


def _note_progress(title: str, done: int, all_: int, at_work: str = "") -> None:
    _activity.text = f"{title}: {done} of {all_}" + f", now {at_work}" * bool(at_work)


@contextmanager
def show_bars(*columns: ProgressColumn, refreshes: float = REFRESHES) -> Iterator[Progress]:
    """Bars on the terminal, each with its description and these columns; in the end they go."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    class Description(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(printable(task.description))

    bars = Progress(
        Description(),
        BarColumn(),
        *columns,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=refreshes,
    )
    _activity.has_bars = True
    try:
        with bars:
            yield bars
    finally:
        _activity.has_bars = False


def _print_ended(spec: RunSpec, attempt: AttemptProgress) -> None:
    """Print a line for an ended attempt; a closed pipe does not end the run."""
    if not attempt.ended:
        return
    energy = "" if attempt.energy_j is None else f", {attempt.energy_j:,.0f} J"
    epochs = count(attempt.epoch, "epoch")
    duration = f"after {epochs}, {attempt.time_s:,.1f} s{energy}"
    why = f": {attempt.message}" if attempt.message else ""
    line = f"{spec.variant.name}, seed {spec.seed}: {_describe(attempt)} {duration}{why}"
    _write_line(line)


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
    """The console of tables: as wide as the terminal, 120 columns in a pipe.

    Text is shown as it is, but for control characters: no markup, no names of emoji.
    """
    from rich.console import Console

    class PlainConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            _activity.wrote_s = time.monotonic()
            super().print(*objects, **options)

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1

    file = _activity.output or sys.stdout
    width = None if file.isatty() else 120
    return PlainConsole(file=file, width=width, highlight=False, markup=False, emoji=False)
