"""Sweeps the batch sizes and power limits of a training script.

Every run of the script that was finished is kept in a folder, so that a sweep that was interrupted,
or killed, goes on where it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from wattkeeper.live.controller.launchers.local import by_torchrun, check_torchrun
from wattkeeper.live.devices.device import CommonRange
from wattkeeper.live.host import process_identity
from wattkeeper.live.host.failures import is_out_of_memory
from wattkeeper.live.record import process
from wattkeeper.live.session.arguments import stepped
from wattkeeper.live.session.coordinators import RECORDING
from wattkeeper.live.session.recording_coordinator import EVENTS, ORDERS, RecordingRequest
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.files.atomic import replace_file

LAST_LINES: Final = 5

Progress = Callable[[int, int], None]


class RecordingPlan(NamedTuple):
    """What is recorded.

    Attributes:
        script: A file, or the name of a module.
        arguments: Of the script.
        batch_sizes: Global batch sizes; None: those that the script gives its session.
        power_limits_w: Of each GPU, W; None: those that may be set, in steps of 25 W.
        repeats: Trainings to the target, for each batch size.
        epochs: At each lower power limit.
        torchrun: Processes that torchrun starts of it; None: it is started as it is.
        lease_s: A run is given up that is silent for so long, s; starting it counts.
    """

    script: str
    arguments: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] | None = None
    power_limits_w: tuple[float, ...] | None = None
    repeats: int = 3
    epochs: int = 3
    torchrun: int | None = None
    lease_s: float = 60.0

    @property
    def shown(self) -> str:
        """What the user calls it."""
        return " ".join((self.script, *self.arguments))

    def command(self) -> list[str]:
        """What starts the script.

        Raises:
            InputError: If there is no such script.
            EnvironmentLacks: If torchrun is asked for and not there.
        """
        is_file = Path(self.script).is_file()
        if not is_file and self.source() is None:
            raise InputError(
                f"no training script {self.script!r}: name a file, or a module as "
                "wattkeeper.live.examples.cnn"
            )
        named = [self.script] if is_file else ["-m", self.script]
        command = [sys.executable, *named, *self.arguments]
        if self.torchrun is None:
            return command
        check_torchrun()
        return by_torchrun(command, self.torchrun)

    def source(self) -> Path | None:
        """The script's file; None if there is none."""
        if Path(self.script).is_file():
            return Path(self.script)
        try:
            spec = importlib.util.find_spec(self.script)
        except (ImportError, ValueError):
            return None
        return Path(spec.origin) if spec is not None and spec.origin else None

    def digest(self) -> str:
        """SHA-256 of the script's file."""
        source = self.source()
        return hashlib.sha256(source.read_bytes() if source else b"").hexdigest()


class RecordedRun(NamedTuple):
    """A finished run of the script.

    Attributes:
        wanted: What it was told.
        spawned_s: When its process was started.
        exited_s: When that was over.
        events: What its session did: `begun`, `epoch`, `ended`.
    """

    wanted: RecordingRequest
    spawned_s: float
    exited_s: float
    events: list[Json]

    @property
    def begun(self) -> Json:
        """The orders, what the script says, and on what it ran."""
        return self.events[0]

    @property
    def ended(self) -> Json:
        """What it came to."""
        return self.events[-1]

    @property
    def epochs(self) -> list[Json]:
        """The epochs that it did, in order."""
        return [row for row in self.events if row["event"] == "epoch"]

    @property
    def fits(self) -> bool:
        """Whether its batch size fits the memory."""
        return not is_out_of_memory(str(self.ended["message"]))


class Recording(NamedTuple):
    """All runs of a sweep.

    Attributes:
        full: To the target, all batch sizes and repetitions.
        limited: Some epochs at lower power limits.
        stopped: The one that was told to stop, and the one that went on if the script keeps its
            state.
        settle_s: Until a power limit was in force, s; None where none may be set.
    """

    full: list[RecordedRun]
    limited: list[RecordedRun]
    stopped: list[RecordedRun]
    settle_s: float | None


def record(
    sweep: RecordingPlan,
    folder: Path,
    check: Callable[[Json], None],
    progress: Progress = lambda done, all_: None,
) -> Recording:
    """Run the script as often as is needed.

    Args:
        sweep: What is recorded.
        folder: Where finished runs are kept; those of the same script and arguments are not done
            again.
        check: Is told of the first run, and may refuse it.
        progress: Called with the number of finished runs and of all runs.

    Raises:
        InputError: If the script is not there, has no session, gives it no target, fails, or is
            silent for too long.
        EnvironmentLacks: If power limits are asked for that may not be set, or another recorder
            is at work there.
    """
    command = sweep.command()
    key = json.dumps([command, sweep.digest(), str(Path.cwd())])
    folder = folder / hashlib.sha256(key.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder) as lock, _terminated():
        runs = _Runs(sweep, command, folder, lock)
        most_w = None if sweep.power_limits_w is None else max(sweep.power_limits_w)
        progress(0, 1)
        first = runs.run(RecordingRequest(None, most_w, 1))
        check(first.begun)
        _check_target(sweep, first.begun)
        _check_gpus(sweep, first.begun)
        sizes, limits_w = _sizes(sweep, first.begun), _limits(sweep, first.begun)
        full = [
            RecordingRequest(size, most_w, at)
            for size in sizes
            for at in range(1, sweep.repeats + 1)
        ]
        limited = [RecordingRequest(size, limit_w, 1, epochs=sweep.epochs) for size in sizes
                   for limit_w in limits_w]  # fmt: skip
        total = len(full) + len(limited) + 2
        done: list[RecordedRun] = []
        unfit: set[int] = set()
        for wanted in (*full, *limited):
            progress(len(done), total)
            size = wanted.batch_size
            assert size is not None
            if wanted == first.wanted._replace(batch_size=first.begun["batch_size"]):
                done.append(first)
            elif size not in unfit:
                done.append(runs.run(wanted))
                if not done[-1].fits:
                    unfit.add(size)
        stopped = list(_stopped(runs, RecordingRequest(None, most_w, 1, 2), folder / "kept"))
        progress(total, total)
        settle_s = _settle_s(limits_w) if first.begun["allowed"] and limits_w else None
    return Recording(
        [run for run in done if run.wanted.epochs is None],
        [run for run in done if run.wanted.epochs is not None],
        stopped,
        settle_s,
    )


def _stopped(runs: _Runs, wanted: RecordingRequest, kept: Path) -> Iterator[RecordedRun]:
    """The run that is told to stop after an epoch, and, if it kept its state, that goes on."""
    stopped = runs.run(wanted._replace(stop_after=1, checkpoint=str(kept)))
    yield stopped
    if kept.exists() and stopped.begun["terms"]["max_epochs"] > 1:
        last = stopped.epochs[-1]
        done = {"epochs_done": 1, "time_done_s": last["time_s"], "energy_done_j": last["energy_j"]}
        yield runs.run(wanted._replace(checkpoint=str(kept), **done))


def forget(folder: Path) -> None:
    """Remove the runs that are kept in a folder: they are in a trace now."""
    shutil.rmtree(folder, ignore_errors=True)


class _Runs:
    """Runs the script, or finds that it ran."""

    def __init__(
        self, sweep: RecordingPlan, command: Sequence[str], folder: Path, lock: int
    ) -> None:
        self._sweep, self._command, self._folder, self._lock = sweep, command, folder, lock
        self._wall = run_clock()

    def run(self, wanted: RecordingRequest) -> RecordedRun:
        """The finished run of what is wanted.

        Raises:
            InputError: If the script failed, or fell silent.
        """
        named = json.dumps(wanted._replace(energy_done_j=None, time_done_s=0.0))
        path = self._folder / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.json"
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            return RecordedRun(RecordingRequest(*kept.pop("wanted")), **kept)
        done = self._run(wanted, path.with_suffix(".log"))
        with replace_file(path) as new:
            new.write_text(json.dumps(done._asdict()), encoding="utf-8")
        return done

    def _run(self, wanted: RecordingRequest, log: Path) -> RecordedRun:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="now-") as name:
            now = Path(name)
            told = wanted._replace(lease_s=self._sweep.lease_s, parent=process_identity.me())
            (now / ORDERS).write_text(json.dumps(told._asdict()), encoding="utf-8")
            spawned_s = self._wall.now_s()
            try:
                code = process.execute(
                    self._command, {RECORDING: name}, log, now / EVENTS, self._sweep.lease_s,
                    self._lock,  # held until the training is over, too
                )  # fmt: skip
            except process.LeaseExpired as silent:
                what = (
                    f"{silent}, and was ended; --lease, or the Session's lease_s, gives it longer"
                )
                raise self._failure(wanted, what, log, now) from None
            exited_s = self._wall.now_s()
            events = process.read(now / EVENTS)
            if why := _fault(events, code):
                raise self._failure(wanted, why, log, now)
            return RecordedRun(wanted, spawned_s, exited_s, events)

    def _failure(self, wanted: RecordingRequest, what: str, log: Path, now: Path) -> InputError:
        """What to say of a run that cannot be recorded."""
        events = process.read(now / EVENTS)
        size = events[0]["batch_size"] if events else wanted.batch_size
        at = "its default batch size" if size is None else f"batch size {size}"
        output = log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = "".join(f"\n  {line}" for line in output[-LAST_LINES:])
        return InputError(
            f"{self._sweep.shown}, at {at}, {what}; what was recorded before is kept, so that the "
            f"same command goes on there. Its log is {log}"
            + (f"; the last lines:{said}" * bool(said))
        )


def _fault(events: Sequence[Json], code: int) -> str:
    """What is wrong with a run that is over; empty if nothing is."""
    ended = events and events[-1]["event"] == "ended"
    if ended and is_out_of_memory(str(events[-1]["message"])):
        return ""
    if ended and code == 0 and len(events) > 2 and events[-1]["cause"] != "failed":
        return ""
    if code:
        return f"ended with exit code {code}"
    if not events:
        return "ended without a Session; a script that is recorded needs one (docs/session.md)"
    return "ended without an epoch; iterate over session.epochs(loader)"


def _check_target(sweep: RecordingPlan, begun: Mapping[str, Any]) -> None:
    if begun["terms"]["target"] is None:
        raise InputError(
            f"{sweep.script} gives its Session no target, so that nothing says how many epochs a "
            "batch size needs: say Session(..., target=VALUE)"
        )


def _check_gpus(sweep: RecordingPlan, begun: Mapping[str, Any]) -> None:
    if sweep.torchrun is not None and sweep.torchrun != begun["gpus"]:
        raise InputError(
            f"torchrun starts {sweep.torchrun} processes (--torchrun), and the Session finds "
            f"{begun['gpus']} GPUs, whose energy it measures: let it see as many "
            "(CUDA_VISIBLE_DEVICES)"
        )


def _sizes(sweep: RecordingPlan, begun: Mapping[str, Any]) -> list[int]:
    """The default batch size, which a profile cannot do without, and those that are asked for."""
    terms = begun["terms"]
    return sorted({terms["default_batch_size"], *(sweep.batch_sizes or terms["batch_sizes"])})


def _limits(sweep: RecordingPlan, begun: Mapping[str, Any]) -> list[float]:
    """The power limits below that of the trainings to the target, W.

    Raises:
        EnvironmentLacks: If they are asked for and may not be set.
        InputError: If they are out of range.
    """
    asked = sweep.power_limits_w
    if not begun["allowed"]:
        if asked:
            raise EnvironmentLacks(f"no power limit can be set: {begun['why']}; leave them out")
        return []
    common = CommonRange(*begun["limits_w"])
    if asked is None:
        return [*reversed(stepped(*common)[:-1])]
    common.check(min(asked))
    return sorted(set(asked), reverse=True)[1:]


def _settle_s(limits_w: Sequence[float]) -> float:
    """How long it takes to put a power limit in force, s: the median over these limits."""
    from statistics import median

    from wattkeeper.live.devices import found
    from wattkeeper.live.devices.power_limiter import PowerLimiter

    took = []
    wall = run_clock()
    with PowerLimiter(found()) as limiter:
        for limit_w in limits_w:
            began_s = wall.now_s()
            limiter.set_w(limit_w)
            took.append(wall.now_s() - began_s)
    return median(took)


@contextmanager
def _alone(folder: Path) -> Iterator[int]:
    """Inside, no other recorder, nor a training that a killed one left behind, is at work here."""
    # Not by `traces.files.locks`: the training inherits this lock, and outlives its recorder.
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    except BlockingIOError:
        raise EnvironmentLacks(
            "this script is being recorded already, or a training that a killed recorder started "
            "is still at its epoch: wait until it is over"
        ) from None
    finally:
        os.close(lock)


@contextmanager
def _terminated() -> Iterator[None]:
    """Inside, SIGTERM interrupts as the keyboard does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
