"""Sweeps the batch sizes and power limits of a training script.

Every finished run of the script is stored, so that an interrupted or killed sweep resumes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wattkeeper.live.controller.launchers.local import check_torchrun, find_module, torchrun_command
from wattkeeper.live.devices.device import CommonRange
from wattkeeper.live.host import process_identity
from wattkeeper.live.host.failures import is_out_of_memory
from wattkeeper.live.record import process
from wattkeeper.live.session.arguments import power_limit_steps
from wattkeeper.live.session.connection import RECORDING
from wattkeeper.live.session.recording_coordinator import EVENTS, REQUEST, RecordingRequest
from wattkeeper.live.wire.clock import run_clock
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.private import make_private_folder, open_private
from wattkeeper.traces.files.seals import seal_json, unseal_json

Progress = Callable[[int, int], None]


class RecordingPlan(NamedTuple):
    """A script and the settings to record it with.

    Attributes:
        script: A file, or the name of a module.
        arguments: Arguments of the script.
        batch_sizes: Global batch sizes; None: those that the script gives its session.
        power_limits_w: Limits of each GPU, W; None: the supported range in steps of 25 W.
        repeats: Trainings to the target at each batch size.
        epochs: Epochs at each lower power limit.
        torchrun: Number of processes that torchrun starts; None: the script is run directly.
        lease_s: Longest time without progress until a run is killed, s; startup counts.
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
    def title(self) -> str:
        """The script and its arguments, for messages."""
        return " ".join((self.script, *self.arguments))

    def command(self) -> list[str]:
        """The command that starts the script.

        Raises:
            InputError: If there is no such script.
            EnvironmentLacks: If torchrun is requested and not installed.
        """
        is_file = Path(self.script).is_file()
        if not is_file and self.source() is None:
            raise InputError(
                f"no training script {self.script!r}: name a file, or a module as "
                "wattkeeper.live.examples.cnn"
            )
        target = [self.script] if is_file else ["-m", self.script]
        command = [sys.executable, *target, *self.arguments]
        if self.torchrun is None:
            return command
        check_torchrun()
        return torchrun_command(command, self.torchrun)

    def source(self) -> Path | None:
        """The script's file; None if there is none."""
        if Path(self.script).is_file():
            return Path(self.script)
        return find_module(self.script)

    def digest(self) -> str:
        """SHA-256 of the script's file; empty if there is none."""
        source = self.source()
        return digest_file(source) if source else ""


class ScriptRun(NamedTuple):
    """A finished run of the script.

    Attributes:
        request: The settings that its session was given.
        spawned_s: Time when its process was started.
        exited_s: Time when its process had exited.
        events: Events of its session: `begun`, `epoch`, `ended`.
    """

    request: RecordingRequest
    spawned_s: float
    exited_s: float
    events: list[Json]

    @property
    def begun(self) -> Json:
        """The first event: the assignment, the script's arguments and the hardware."""
        return self.events[0]

    @property
    def ended(self) -> Json:
        """The last event: the result."""
        return self.events[-1]

    @property
    def epochs(self) -> list[Json]:
        """The events of its epochs, in order."""
        return [row for row in self.events if row["event"] == "epoch"]

    @property
    def fits(self) -> bool:
        """Whether its batch size fits into memory."""
        return not is_out_of_memory(str(self.ended["message"]))


class Recording(NamedTuple):
    """All runs of a sweep.

    Attributes:
        full: Runs to the target at all batch sizes, with repetitions.
        limited: Runs of some epochs at lower power limits.
        stopped: The run that was told to stop, and the one that resumed it if the script keeps its
            state.
        settle_s: Time until a power limit is in force, s; None where none may be set.
    """

    full: list[ScriptRun]
    limited: list[ScriptRun]
    stopped: list[ScriptRun]
    settle_s: float | None


def record(
    plan: RecordingPlan,
    folder: Path,
    check: Callable[[Json], None],
    progress: Progress = lambda finished, total: None,
) -> Recording:
    """Run a script once for every point of the sweep.

    Args:
        plan: The script and the settings.
        folder: Stores finished runs; those of the same script and arguments are not repeated.
        check: Called with the first run's `begun` event; raises to refuse it.
        progress: Called with the numbers of finished and of all runs.

    Raises:
        InputError: If the script is missing, has no session, gives it no target, fails, or makes
            no progress for too long.
        EnvironmentLacks: If power limits are requested that may not be set, or another recording
            uses the folder.
    """
    command = plan.command()
    key = json.dumps([command, plan.digest(), str(Path.cwd())])
    folder = folder / hashlib.sha256(key.encode()).hexdigest()[:16]
    make_private_folder(folder)
    with _lock_folder(folder) as lock:
        runner = _ScriptRunner(plan, command, folder, lock)
        highest_w = None if plan.power_limits_w is None else max(plan.power_limits_w)
        progress(0, 1)
        # First, since on a host whose caches are cold it takes longer than a training should.
        stopping = _run_stopped(runner, RecordingRequest(None, highest_w, 1, 2), folder)
        first = next(stopping)
        check(first.begun)
        _check_session(plan, first.begun)
        stopped = [first, *stopping]
        terms, limits_w = first.begun["terms"], _choose_limits(plan, first.begun)
        chosen = plan.batch_sizes or terms["batch_sizes"]
        sizes = sorted({terms["default_batch_size"], *chosen})  # every profile needs the default
        requests = [
            RecordingRequest(size, highest_w, recurrence)
            for size in sizes
            for recurrence in range(1, plan.repeats + 1)
        ]
        requests += [
            RecordingRequest(size, limit_w, 1, epochs=plan.epochs)
            for size in sizes
            for limit_w in limits_w
        ]
        total = len(stopped) + len(requests)
        runs: list[ScriptRun] = []
        unfit: set[int] = set()
        for request in requests:
            progress(len(stopped) + len(runs), total)
            size = request.batch_size
            assert size is not None
            if size not in unfit:
                runs.append(runner.run(request))
                if not runs[-1].fits:
                    unfit.add(size)
        progress(total, total)
        settle_s = _measure_settle_s(limits_w) if first.begun["allowed"] and limits_w else None
    return Recording(
        [run for run in runs if run.request.epochs is None],
        [run for run in runs if run.request.epochs is not None],
        stopped,
        settle_s,
    )


def _run_stopped(
    runner: _ScriptRunner, request: RecordingRequest, folder: Path
) -> Iterator[ScriptRun]:
    """Stop a run after an epoch, and resume it if the script saved a checkpoint."""
    checkpoint = folder / "kept"
    stopped = runner.run(request._replace(stop_after=1, checkpoint=str(checkpoint)))
    yield stopped
    if checkpoint.exists() and stopped.begun["terms"]["max_epochs"] > 1:
        last = stopped.epochs[-1]
        done = {"epochs_done": 1, "time_done_s": last["time_s"], "energy_done_j": last["energy_j"]}
        yield runner.run(request._replace(checkpoint=str(checkpoint), **done))


def remove_runs(folder: Path) -> None:
    """Remove the stored runs of a recording, once they are in a trace."""
    shutil.rmtree(folder, ignore_errors=True)


class _ScriptRunner:
    """Runs the script, unless the folder has the finished run."""

    def __init__(
        self, plan: RecordingPlan, command: Sequence[str], folder: Path, lock: int
    ) -> None:
        self._plan, self._command, self._folder, self._lock = plan, command, folder, lock
        self._wall = run_clock()

    def run(self, request: RecordingRequest) -> ScriptRun:
        """The finished run with these settings.

        Raises:
            InputError: If the script failed, or made no progress.
        """
        key = _key(request)
        path = self._folder / f"run-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        done = _load_run(path)
        if done is None or _key(done.request) != key:
            done = self._run(request, path.with_suffix(".log"))
            with replace_file(path, private=True) as new:
                new.write_text(seal_json(done._asdict()), encoding="utf-8")
        return done

    def _run(self, request: RecordingRequest, log: Path) -> ScriptRun:
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="now-") as name:
            session = Path(name)
            sent = request._replace(lease_s=self._plan.lease_s, parent=process_identity.identify())
            (session / REQUEST).write_text(json.dumps(sent._asdict()), encoding="utf-8")
            spawned_s = self._wall.now_s()
            try:
                code = process.execute(
                    self._command,
                    {RECORDING: name},
                    log,
                    session / EVENTS,
                    self._plan.lease_s,
                    self._lock,  # held until the training ends, even if this process is killed
                )
            except process.LeaseExpired as expired:
                fault = f"{expired}, and was killed; --lease or Session(lease_s=...) allows more"
                raise self._failure(request, fault, log, session) from None
            exited_s = self._wall.now_s()
            events = process.read_events(session / EVENTS)
            if fault := _find_fault(events, code):
                raise self._failure(request, fault, log, session)
            return ScriptRun(request, spawned_s, exited_s, events)

    def _failure(
        self, request: RecordingRequest, fault: str, log: Path, session: Path
    ) -> InputError:
        """The error for a run that cannot be recorded."""
        events = process.read_events(session / EVENTS)
        size = events[0]["batch_size"] if events else request.batch_size
        batch_size = "its default batch size" if size is None else f"batch size {size}"
        output = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last_lines = "".join(f"\n  {line}" for line in output[-5:])
        return InputError(
            f"{self._plan.title}, at {batch_size}, {fault}; finished runs are stored, and the same "
            f"command resumes the recording. Its log is {log}"
            + (f"; the last lines:{last_lines}" * bool(last_lines))
        )


def _key(request: RecordingRequest) -> str:
    """What names a stored run."""
    return json.dumps(request._replace(energy_done_j=None, time_done_s=0.0))


def _load_run(path: Path) -> ScriptRun | None:
    """A stored run; None if it is not there, not as it was written, or of another version."""
    try:
        stored = unseal_json(path.read_bytes())
        return ScriptRun(RecordingRequest(*stored.pop("request")), **stored)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _find_fault(events: Sequence[Json], code: int) -> str:
    """What is wrong with a run that has ended; empty if nothing is."""
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


def _check_session(plan: RecordingPlan, begun: Json) -> None:
    if begun["terms"]["target"] is None:
        raise InputError(
            f"{plan.script} gives its Session no target, up to which the epochs of a batch "
            "size are counted: pass Session(..., target=VALUE)"
        )
    if plan.torchrun is not None and plan.torchrun != begun["gpus"]:
        raise InputError(
            f"torchrun starts {plan.torchrun} processes (--torchrun), and the Session finds "
            f"{begun['gpus']} GPUs, whose energy it measures: make as many visible "
            "(CUDA_VISIBLE_DEVICES)"
        )


def _choose_limits(plan: RecordingPlan, begun: Json) -> list[float]:
    """The power limits below that of the trainings to the target, W, in falling order.

    Raises:
        EnvironmentLacks: If limits are requested and may not be set.
        InputError: If they are out of range.
    """
    requested = plan.power_limits_w
    if not begun["allowed"]:
        if requested:
            raise EnvironmentLacks(f"no power limit can be set: {begun['why']}; leave them out")
        return []
    common = CommonRange(*begun["limits_w"])
    if requested is None:
        return [*reversed(power_limit_steps(*common)[:-1])]
    common.check(min(requested))
    return sorted(set(requested), reverse=True)[1:]


def _measure_settle_s(limits_w: Sequence[float]) -> float:
    """Time until a power limit is in force, s: the median over these limits."""
    from statistics import median

    from wattkeeper.live.devices import find_devices
    from wattkeeper.live.devices.power_limiter import PowerLimiter

    durations_s = []
    wall = run_clock()
    with PowerLimiter(find_devices()) as limiter:
        for limit_w in limits_w:
            began_s = wall.now_s()
            limiter.set_w(limit_w)
            durations_s.append(wall.now_s() - began_s)
    return median(durations_s)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[int]:
    """Hold the folder's lock, which a killed recording's training still holds until it ends."""
    # Not by `traces.files.locks`: the training inherits this lock, and outlives its recorder.
    lock = open_private(folder / "lock", os.O_RDWR | os.O_CREAT)
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
