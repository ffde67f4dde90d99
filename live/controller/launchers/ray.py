"""Attempts on the hosts of a Ray cluster: Ray places and starts them, in placement groups."""

import contextlib
import logging
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, Final

from typing_extensions import override

from wattkeeper.live.controller.launchers.launcher import Gpu, Launcher, LaunchRequest, ReportExit
from wattkeeper.live.controller.launchers.local import (
    command_line,
    run_variables,
    spawn,
    torchrun_command,
)
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.files.names import file_name

NAMESPACE: Final = "wattkeeper"
NODE_LABEL: Final = "ray.io/node-id"
CONNECT_TIMEOUT_S: Final = 10.0
CPUS: Final = 1
"""Ray's CPUs that a process is counted with."""


def connect(address: str | None) -> None:
    """Join a Ray cluster, or start one on this host.

    Raises:
        EnvironmentLacks: If Ray is not installed, or does not answer there.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "runner: ray needs Ray, which is not installed: pip install 'wattkeeper[ray]'"
        ) from None
    if _ray().is_initialized():
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _check_reachable(address)
        ray.init(
            address=address, namespace=NAMESPACE, logging_level=logging.ERROR, log_to_driver=False
        )
    except Exception as error:  # Ray raises many kinds, with many lines
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        raise EnvironmentLacks(
            f"Ray is not reachable at {address or 'this host'} ({first}): start it with `ray start "
            "--head`, and name the address that it prints (--ray HOST:6379)"
        ) from None
    finally:
        if callable(handler):  # Ray's own one exits with 15
            signal.signal(signal.SIGTERM, handler)


def _ray() -> Any:
    """The package, which gives most of its functions no types."""
    return import_module("ray")


def _check_reachable(address: str | None) -> None:
    """Raise OSError at once where no server listens: Ray itself retries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()


def node_address() -> str:
    """The address of this host in the Ray cluster."""
    address: str = _ray().util.get_node_ip_address()
    return address


def run_on_gpu_host(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a host of the cluster that has a GPU, and return its result.

    Raises:
        EnvironmentLacks: If there is none.
    """
    ray = _ray()
    if not ray.cluster_resources().get("GPU"):
        raise EnvironmentLacks(
            "the Ray cluster has no GPU: start its nodes with some (`ray start --num-gpus N`)"
        )
    return ray.get(ray.remote(num_gpus=1, num_cpus=0)(call).remote(*arguments))


class RayLauncher(Launcher):
    """Processes on the hosts of a Ray cluster: a `Launcher`.

    Each node of the scenario is a node of Ray with at least as many GPUs. An attempt on several
    GPUs is started by torchrun on each of its nodes. Processes end with the controller.

    Args:
        exited: Called in a thread when an attempt's processes have exited.
        folder: Folder of the run; each host needs it.
        capacity: GPUs by node of the scenario.

    Raises:
        EnvironmentLacks: If the cluster is too small.
    """

    def __init__(self, exited: ReportExit, folder: Path, capacity: Sequence[int]) -> None:
        ray = self._ray = _ray()
        self._exited, self._folder = exited, folder
        self.host = node_address()
        self._nodes = match_nodes(capacity, ray.nodes())
        self._groups: dict[str, Any] = {}
        self._actors: dict[str, list[Any]] = {}
        self._ended: set[str] = set()

    @override
    def start(self, request: LaunchRequest) -> None:
        Thread(target=self._execute, args=(request,), daemon=True).start()

    def adopt(self) -> dict[str, tuple[Gpu, ...]]:
        """No processes: Ray ends those of a controller that has exited."""
        return {}

    @override
    def kill(self, run: str) -> None:
        self._ended.add(run)
        for actor in self._actors.get(run, ()):
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(actor.kill.remote())

    @override
    def close(self) -> None:
        for run in list(self._groups):
            self.kill(run)

    def _execute(self, request: LaunchRequest) -> None:
        """Start the processes of an attempt, and wait for their end."""
        ray, run = self._ray, request.run
        code: int | None = None
        try:
            by_node: dict[int, int] = {}
            for node, _ in request.gpus:
                by_node[node] = by_node.get(node, 0) + 1
            group = self._groups[run] = ray.util.placement_group(
                [{"GPU": gpus, "CPU": CPUS} for gpus in by_node.values()],
                strategy="PACK" if len(by_node) == 1 else "STRICT_SPREAD",
                bundle_label_selector=[{NODE_LABEL: self._nodes[node]} for node in by_node],
            )
            ray.get(group.ready())
            if run not in self._ended:
                code = self._run(request, group, list(by_node.values()))
        except ray.exceptions.RayError as error:
            logging.getLogger("wattkeeper.live").warning("%s: %s", run, error)
        finally:
            self._actors.pop(run, None)
            group = self._groups.pop(run, None)
            if group is not None:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.util.remove_placement_group(group)
            self._exited(run, code)

    def _run(self, request: LaunchRequest, group: Any, gpus: Sequence[int]) -> int:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ray = self._ray
        remote, home = ray.remote(_Process), str(Path.cwd())
        actors = self._actors[request.run] = [
            remote.options(
                num_cpus=CPUS,
                num_gpus=count,
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                ),
            ).remote(str(self._folder.absolute()), home, request.run)
            for index, count in enumerate(gpus)
        ]
        master = ray.get(actors[0].address.remote()) if sum(gpus) > 1 else None
        variables = {**request.environment, **run_variables(request)}
        waits = [
            actor.execute.remote(list(request.command), variables, master, len(gpus), rank, count)
            for rank, (actor, count) in enumerate(zip(actors, gpus, strict=True))
        ]
        code = 0
        while waits and code == 0:
            ended, waits = ray.wait(waits)
            code = ray.get(ended[0])
        for actor in actors:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(actor.kill.remote())
            ray.kill(actor)
        return code


class _Process:
    """A process on one host, in an actor of Ray.

    It has the id `run`, and works in `home`, if that exists there.
    """

    def __init__(self, folder: str, home: str, run: str) -> None:
        self._folder, self._run = Path(folder), run
        self._home = home if Path(home).is_dir() else None
        self._process: subprocess.Popen[bytes] | None = None

    def address(self) -> tuple[str, int]:
        """Address for the rendezvous of an attempt's processes: this host, and a free port."""
        host = node_address()
        with socket.socket() as free:
            free.bind((host, 0))
            return host, int(free.getsockname()[1])

    def execute(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        master: tuple[str, int] | None,
        nodes: int,
        rank: int,
        gpus: int,
    ) -> int:
        """Run a command to its end; its exit code."""
        line = command_line(command)
        if master is not None:
            host, port = master
            rendezvous = (
                f"--nnodes={nodes}",
                f"--node-rank={rank}",
                f"--master-addr={host}",
                f"--master-port={port}",
            )
            line = torchrun_command(line, gpus, rendezvous)
        stem = f"{file_name(self._run)}.{rank}"
        self._process = spawn(
            line, variables, self._folder, stem, self._home, prepare=_end_with_parent
        )
        return self._process.wait()

    def kill(self) -> None:
        """Kill the attempt's processes on this host, and wait for the guards of its limits."""
        import time

        from wattkeeper.live.controller import processes

        processes.kill(self._run, self._process)
        while processes.guards(self._run):
            time.sleep(processes.PAUSE_S)


def _end_with_parent() -> None:
    """Have the kernel kill this process when the actor that starts it is gone."""
    import ctypes
    import signal

    set_signal = 1  # PR_SET_PDEATHSIG, prctl(2)
    ctypes.CDLL(None).prctl(set_signal, signal.SIGKILL)


def match_nodes(capacity: Sequence[int], nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The id of a Ray node for each node of a scenario, the smallest that suffices.

    `capacity` is GPUs by node of the scenario; `nodes` are as `ray.nodes` gives them.

    Raises:
        EnvironmentLacks: If there are too few.
    """
    available = [
        (int(node["Resources"].get("GPU", 0)), str(node["NodeID"]))
        for node in nodes
        if node["Alive"]
    ]
    free = sorted(available)
    matches: dict[int, str] = {}
    for node in sorted(range(len(capacity)), key=capacity.__getitem__):
        while free and free[0][0] < capacity[node]:
            free.pop(0)
        if not free:
            sizes = ", ".join(str(gpus) for gpus, _ in sorted(available, reverse=True)) or "none"
            raise EnvironmentLacks(
                f"the scenario has {len(capacity)} nodes with "
                f"{', '.join(map(str, sorted(capacity, reverse=True)))} GPUs, Ray's have {sizes}: "
                "make the cluster smaller (cluster), or add nodes to Ray"
            )
        matches[node] = free.pop(0)[1]
    return [matches[node] for node in range(len(capacity))]
