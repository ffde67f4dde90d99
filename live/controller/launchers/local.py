"""What starts the processes of attempts on this host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple, Protocol

from wattkeeper.live.controller import processes
from wattkeeper.live.wire.client import RUN
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.errors import EnvironmentLacks, InputError

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
HOLDS: Final = "WATTKEEPER_HOLDS"
"""Environment variable: the GPUs that a run holds, `node:gpu` with `,` between."""

Gpu = tuple[int, int]
"""A node of the cluster, and one of its GPUs, from 0."""

Exited = Callable[[str, int | None], None]
"""Takes the run whose process is gone, and its exit code, if it is known."""


class LaunchRequest(NamedTuple):
    """A process that carries an attempt out.

    Attributes:
        run: Its id.
        command: What is executed.
        environment: What is added to the environment.
        gpus: Those that it holds, in ascending order.
    """

    run: str
    command: Sequence[str]
    environment: Mapping[str, str]
    gpus: tuple[Gpu, ...]


class Launcher(Protocol):
    """Starts processes, and tells when they are gone.

    Attributes:
        host: Where sessions find the controller.
    """

    host: str

    def start(self, start: LaunchRequest) -> None:
        """Start a process; that it is gone is told once."""

    def found(self) -> dict[str, tuple[Gpu, ...]]:
        """Runs that an earlier controller started and that go on, with the GPUs that they hold.

        From now on it is told when they are gone.
        """

    def kill(self, run: str) -> None:
        """End a run at once, with all that it started."""

    def close(self) -> None:
        """End all runs that are left."""


class LocalLauncher:
    """Processes on this host, each in a session of its own, with their output in files.

    The nodes of the cluster are this host, whose GPUs are numbered through.

    Args:
        server: Watches them.
        exited: Called, in the server's thread, when one is gone.
        folder: Where their output goes.
        token: What tells them from those of other controllers.
        first_gpu: The number of the first GPU of each node.
        torchrun: Start every command by `torch.distributed.run`, as one process a GPU.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        server: SessionServer,
        exited: Exited,
        folder: Path,
        token: str,
        first_gpu: Sequence[int],
        *,
        torchrun: bool = False,
    ) -> None:
        self._server, self._exited = server, exited
        self._folder, self._token, self._first_gpu = folder, token, first_gpu
        self._torchrun = torchrun
        self._running: dict[str, subprocess.Popen[bytes] | None] = {}
        visible = os.environ.get(VISIBLE, "")
        self._visible = [name for name in visible.split(",") if name]

    def start(self, start: LaunchRequest) -> None:
        """See `Launcher`."""
        command = command_line(start.command)
        if self._torchrun:
            command = by_torchrun(command, len(start.gpus))
        environment = {
            **os.environ,
            **start.environment,
            RUN: start.run,
            HOLDS: shown(start.gpus),
            VISIBLE: ",".join(self._name(gpu) for gpu in start.gpus),
        }
        folder = self._folder / "output"
        folder.mkdir(parents=True, exist_ok=True)
        stem = file_name(start.run)
        with (folder / f"{stem}.out").open("ab") as out, (folder / f"{stem}.err").open("ab") as err:
            try:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentLacks(
                    f"{command[0]} could not be started ({error.strerror}): once that is mended, "
                    "the next run with the same folder goes on"
                ) from None
        self._running[start.run] = process
        self._watch(start.run, process.pid)

    def found(self) -> dict[str, tuple[Gpu, ...]]:
        """See `Launcher`."""
        known: dict[str, tuple[Gpu, ...]] = {}
        for run, members in processes.of_controller(self._token).items():
            leader = next((pid for pid in members if _leads(pid)), min(members))
            self._running[run] = None
            self._watch(run, leader)
            known[run] = read(members[leader].get(HOLDS, ""))
        return known

    def kill(self, run: str) -> None:
        """See `Launcher`."""
        if run in self._running:
            processes.kill(run, self._running.get(run))

    def close(self) -> None:
        """See `Launcher`."""
        for run, process in list(self._running.items()):
            processes.kill(run, process)

    def _watch(self, run: str, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # it is gone already
            self._gone(run)
            return
        self._server.watch(descriptor, lambda: self._gone(run))

    def _gone(self, run: str) -> None:
        process = self._running.pop(run, None)
        code = None if process is None else process.wait()
        processes.kill(run)  # what it started, and left behind
        self._when_guarded(run, processes.guards(run), code)

    def _when_guarded(self, run: str, guards: list[int], code: int | None) -> None:
        """Tell that a run is gone once its guards have put power limits back."""
        while guards:
            try:
                descriptor = os.pidfd_open(guards.pop())
            except ProcessLookupError:
                continue
            self._server.watch(descriptor, lambda: self._when_guarded(run, guards, code))
            return
        self._exited(run, code)

    def _name(self, gpu: Gpu) -> str:
        number = self._first_gpu[gpu[0]] + gpu[1]
        return self._visible[number] if number < len(self._visible) else str(number)


def _leads(pid: int) -> bool:
    """Whether a process began the session that it is in, as those do that a runner starts."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def command_line(command: Sequence[str]) -> list[str]:
    """A command whose `python` is the one that runs this.

    Raises:
        InputError: If there is no such command.
    """
    program, *arguments = command
    if program in {"python", "python3"}:
        return [sys.executable, *arguments]
    if which(program) is None:
        raise InputError(f"command {program!r} is not there, or may not be executed")
    return [program, *arguments]


def by_torchrun(command: Sequence[str], count: int) -> list[str]:
    """The command that starts so many processes of one training on this host."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1",
        f"--nproc-per-node={count}", "--no-python", *command,
    ]  # fmt: skip


def check_torchrun() -> None:
    """Refuse to begin without what `torchrun` needs.

    Raises:
        EnvironmentLacks: It says how to install it.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentLacks("torchrun needs torch: pip install 'wattkeeper[live]'")


def shown(gpus: Sequence[Gpu]) -> str:
    """GPUs as text."""
    return ",".join(f"{node}:{gpu}" for node, gpu in gpus)


def read(text: str) -> tuple[Gpu, ...]:
    """GPUs from a text of `shown`."""
    found = []
    for part in filter(None, text.split(",")):
        node, _, gpu = part.partition(":")
        found.append((int(node), int(gpu)))
    return tuple(found)


def file_name(run: str) -> str:
    """A run's id as a file may be called."""
    return re.sub(r"[^A-Za-z0-9._#-]", "_", run)
