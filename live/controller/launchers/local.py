"""Starts the processes of attempts on this host."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Final

from typing_extensions import override

from wattkeeper.live.controller import processes
from wattkeeper.live.controller.launchers.launcher import Gpu, Launcher, LaunchRequest, ReportExit
from wattkeeper.live.wire.client import LINK, RUN
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.traces.files.names import file_name
from wattkeeper.traces.files.private import make_private_folder, open_private

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
HOLDS: Final = "WATTKEEPER_HOLDS"
"""Environment variable: the GPUs that a run holds, `node:gpu` with `,` between."""


class LocalLauncher(Launcher):
    """Processes on this host, each in a session of its own, with their output in files.

    The nodes of the cluster are this host, whose GPUs are numbered through.

    Args:
        server: Watches them.
        exited: Called in the server's thread when one has exited.
        folder: Folder of the run; their output is in `output`.
        token: Marks them as this controller's.
        first_gpu: The number of the first GPU of each node.
        torchrun: Start every command by `torch.distributed.run`, as one process a GPU.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        server: SessionServer,
        exited: ReportExit,
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

    @override
    def start(self, request: LaunchRequest) -> None:
        command = command_line(request.command)
        if self._torchrun:
            command = torchrun_command(command, len(request.gpus))
        numbers = [self._first_gpu[host] + index for host, index in request.gpus]
        known = dict(enumerate(self._visible))
        visible = ",".join(known.get(number, str(number)) for number in numbers)
        variables = {**request.environment, **run_variables(request), VISIBLE: visible}
        try:
            process = spawn(command, variables, self._folder, file_name(request.run))
        except OSError as error:
            raise EnvironmentLacks(
                f"{command[0]} could not be started ({error.strerror}): once that is repaired, "
                "the next run with the same folder goes on"
            ) from None
        self._running[request.run] = process
        self._watch(request.run, process.pid)

    @override
    def adopt(self) -> dict[str, tuple[Gpu, ...]]:
        runs = defaultdict[str, dict[int, Mapping[str, str]]](dict)
        for pid, environment in processes.environments():
            if environment.get(LINK, "").endswith(f"/{self._token}"):
                runs[environment[RUN]][pid] = environment
        gpus: dict[str, tuple[Gpu, ...]] = {}
        for run, members in runs.items():
            leader = next((pid for pid in members if _is_session_leader(pid)), min(members))
            self._running[run] = None
            self._watch(run, leader)
            gpus[run] = parse_gpus(members[leader].get(HOLDS, ""))
        return gpus

    @override
    def kill(self, run: str) -> None:
        if run in self._running:
            processes.kill(run, self._running.get(run))

    @override
    def close(self) -> None:
        for run, process in list(self._running.items()):
            processes.kill(run, process)

    def _watch(self, run: str, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # it has exited already
            self._handle_exit(run)
            return
        self._server.watch(descriptor, lambda: self._handle_exit(run))

    def _handle_exit(self, run: str) -> None:
        process = self._running.pop(run, None)
        code = None if process is None else process.wait()
        processes.kill(run)  # its descendants
        self._report_exit(run, processes.guards(run), code)

    def _report_exit(self, run: str, guards: list[int], code: int | None) -> None:
        """Report the exit of a run once its guards have restored power limits."""
        while guards:
            try:
                descriptor = os.pidfd_open(guards.pop())
            except ProcessLookupError:
                continue
            self._server.watch(descriptor, lambda: self._report_exit(run, guards, code))
            return
        self._exited(run, code)


def _is_session_leader(pid: int) -> bool:
    """Whether a process leads its session, as those that a launcher started do."""
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


def torchrun_command(
    command: Sequence[str], count: int, rendezvous: Sequence[str] = ("--standalone", "--nnodes=1")
) -> list[str]:
    """The command that starts `count` processes of one training on this host."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *rendezvous,
        f"--nproc-per-node={count}",
        "--no-python",
        *command,
    ]


def run_variables(request: LaunchRequest) -> dict[str, str]:
    """The variables that mark a process as one of a run."""
    return {RUN: request.run, HOLDS: format_gpus(request.gpus)}


def spawn(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    stem: str,
    home: str | None = None,
    prepare: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, whose output goes to files.

    The variables are added to the environment. The files are in `output` of the folder, named
    `stem`. `home` is the working directory (None: this process's); `prepare` is called in the child
    before the command.

    Raises:
        OSError: If it cannot be started.
    """
    output = folder / "output"
    make_private_folder(output)
    with (
        open(output / f"{stem}.out", "ab", opener=open_private) as out,
        open(output / f"{stem}.err", "ab", opener=open_private) as err,
    ):
        return subprocess.Popen(
            command,
            env={**os.environ, **variables},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=prepare,
        )


def check_torchrun() -> None:
    """Refuse to begin without what `torchrun` needs.

    Raises:
        EnvironmentLacks: It says how to install it.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise EnvironmentLacks("torchrun needs torch: pip install 'wattkeeper[live]'")


def check_torch(command: Sequence[str]) -> None:
    """Refuse a Python script that imports torch where that is not installed.

    Raises:
        EnvironmentLacks: It says how to install it.
    """
    from importlib.util import find_spec

    source = _python_source(command)
    if source is not None and _imports_torch(source) and find_spec("torch") is None:
        raise EnvironmentLacks(
            f"{source} imports torch, which is not installed: pip install 'wattkeeper[live]'"
        )


def _python_source(command: Sequence[str]) -> Path | None:
    """The script that a command has Python run; None if that is not clear."""
    program, *arguments = command
    if not Path(program).name.startswith("python") or not arguments:
        return None
    if arguments[0] != "-m":
        return Path(arguments[0])
    return find_module(arguments[1]) if len(arguments) > 1 else None


def find_module(name: str) -> Path | None:
    """The file of a module; None if there is none."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _imports_torch(source: Path) -> bool:
    """Whether a script imports torch in any case; False if it cannot be read."""
    import ast

    try:
        body = ast.parse(source.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    names = [
        [alias.name for alias in statement.names]
        if isinstance(statement, ast.Import)
        else [statement.module or ""]
        for statement in body
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    return any(name.partition(".")[0] == "torch" for group in names for name in group)


def format_gpus(gpus: Sequence[Gpu]) -> str:
    """GPUs as text, `node:gpu` with `,` between."""
    return ",".join(f"{node}:{gpu}" for node, gpu in gpus)


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """GPUs from a text of `format_gpus`."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return tuple((int(node), int(gpu)) for node, gpu in pairs)
