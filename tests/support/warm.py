"""Commands in processes of their own, forked from one that has imported what commands import.

To start an interpreter and to import numpy, pyarrow and the rest takes a second of CPU time for
each command, and a fork next to none. The forked process runs the module as `python -m` does, with
the arguments, environment, folder and output of the request, and ends as any interpreter does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.policies import parts
from wattkeeper.policies.points.point import POINTS

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = "wattkeeper.scenarios"
IMPORTED: Final = (
    "pandas",
    "pyarrow.parquet",
    "rich.table",
    "wattkeeper.scenarios.cli.main",
    "wattkeeper.scenarios.spec.sections.cluster",
    "wattkeeper.scenarios.spec.sections.elastic",
    "wattkeeper.scenarios.spec.sections.electricity",
    "wattkeeper.scenarios.spec.sections.live",
    "wattkeeper.scenarios.spec.sections.pipeline",
    "wattkeeper.scenarios.spec.sections.workload",
    "wattkeeper.scenarios.spec.yaml_document",
    "wattkeeper.sim.engine.world",
    "wattkeeper.sim.engine.zoo",
    "wattkeeper.sim.cluster_results.tables",
    "wattkeeper.traces.library.importer",
    "wattkeeper.traces.library.store",
)
"""None that needs to know all policies, which the folder of a command may add to."""
AT_START: Final = ("PYTHON", "LD_", "OMP_")
"""Variables that begin so are read when an interpreter starts."""
LONGEST_BYTES: Final = 1 << 20


class Ended(NamedTuple):
    """A command that has ended.

    Attributes:
        code: Its exit code, or minus the signal that ended it.
        stdout: What it wrote.
        stderr: What it wrote to its error output.
        peak_bytes: Most memory that it held, or one of the processes that it waited for.
    """

    code: int
    stdout: str
    stderr: str
    peak_bytes: int


class Forker:
    """A process that forks one for each command."""

    def __init__(self) -> None:
        self._started_with = _read_at_start(os.environ)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._requests, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_BYTES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
        )
        theirs.close()
        atexit.register(self._requests.close)

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether this process read the same variables when it started."""
        return _read_at_start(environment) == self._started_with

    def run(
        self,
        arguments: list[str],
        cwd: Path,
        environment: Mapping[str, str],
        limits: Mapping[int, int] | None = None,
    ) -> Ended:
        """Run `wattkeeper` and wait until all that holds its output has ended.

        Args:
            arguments: Of the command.
            cwd: Its folder.
            environment: Its variables, all of them.
            limits: Most of a resource, by its number in the module `resource`.
        """
        asked = json.dumps([arguments, str(cwd), dict(environment), [*(limits or {}).items()]])
        pipes = [os.pipe(), os.pipe()]
        theirs = [writer for _, writer in pipes]
        socket.send_fds(self._requests, [asked.encode()], theirs)
        for writer in theirs:
            os.close(writer)
        with ThreadPoolExecutor() as readers:
            out, err = readers.map(_read, [reader for reader, _ in pipes])
        code, peak = json.loads(self._requests.recv(LONGEST_BYTES))
        return Ended(code, out, err, peak)


@cache
def forker() -> Forker:
    """The one of this process."""
    return Forker()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


def _read(reader: int) -> str:
    with open(reader, "rb") as pipe:
        return pipe.read().decode(errors="replace")


def serve(requests: socket.socket) -> None:
    """Fork a process for each request; returns in that process alone, which is ready to run."""
    for name in IMPORTED:
        importlib.import_module(name)
    for room in (*POINTS, parts.FORECASTS):
        package = importlib.import_module(f"wattkeeper.policies.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    assert not parts._import_foreign.cache_info().currsize, "policies are known"
    gc.collect()
    gc.freeze()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, LONGEST_BYTES, 2)
        if not asked:
            sys.exit()
        pid = os.fork()
        if not pid:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, usage = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        requests.send(json.dumps([code, usage.ru_maxrss << 10]).encode())
    requests.close()
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    arguments, cwd, environment, limits = json.loads(asked)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for kind, limit in limits:
        resource.setrlimit(kind, (limit, limit))
    sys.path[0] = cwd
    sys.argv[1:] = arguments


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
