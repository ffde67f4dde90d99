"""The processes of a live run: which attempt each one carries out, and which GPUs it holds."""

import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.controller.launchers.launcher import Gpu, Launcher, LaunchRequest
from wattkeeper.live.controller.launchers.local import format_gpus
from wattkeeper.live.controller.virtual_time import VirtualTime
from wattkeeper.live.controller.workloads import (
    REHEARSAL,
    LiveAttempt,
    make_synthetic_devices,
    plan_rehearsal,
)
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.client import LINK
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.points.job import Placement
from wattkeeper.policies.profile import Objective
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

EMULATOR: Final = "wattkeeper.live.controller.emulator"
"""The module that emulates trainings without a command."""


class LiveSettings(NamedTuple):
    """Settings of a live run.

    Attributes:
        objective: Weighs energy and time in the cost.
        folder: Folder of checkpoints, devices and output.
        lease_s: Lease of a session, s of the host.
        environment: Variables that every process gets.
        zoo: Folder of the weights of its zoo's models; None if they have none.
    """

    objective: Objective
    folder: Path
    lease_s: float
    environment: Mapping[str, str]
    zoo: Path | None = None


class ExternalLinks(NamedTuple):
    """Links to sessions and processes; without them, a run is only replayed from its log.

    Attributes:
        server: Receives the requests of sessions.
        launcher: Starts processes.
        token: Secret of the sessions.
    """

    server: SessionServer
    launcher: Launcher
    token: str


class ProcessTable:
    """Starts the processes of attempts, each once the GPUs of its placement are free.

    A GPU is given to another process only once the one that had it has exited.

    `wall` is the clock of synthetic devices; `virtual_time` notes which processes work or sleep.

    Attributes:
        links: None: no process is started.
        starts: Whether processes are started now.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        settings: LiveSettings,
        wall: WallClock,
        virtual_time: VirtualTime,
    ) -> None:
        self.links: ExternalLinks | None = None
        self.starts = False
        self._cluster, self._settings = cluster, settings
        self._wall, self._virtual_time = wall, virtual_time
        self._held: dict[str, tuple[Gpu, ...]] = {}
        self._attempts: dict[str, tuple[str, int]] = {}
        self._pending: list[LiveAttempt] = []

    def __bool__(self) -> bool:
        """Whether there is a process."""
        return bool(self._held)

    def __contains__(self, run_id: str | None) -> bool:
        return run_id in self._held

    def attempt_of(self, run_id: str) -> tuple[str, int]:
        """Job and number of the attempt that a process carries out; any thread may ask."""
        return self._attempts.get(run_id, ("", 0))

    def describe_gpus(self, run_id: str | None) -> str:
        """The GPUs of a process, as text; empty if it has none."""
        return "" if run_id is None else format_gpus(self._held.get(run_id, ()))

    def launch(self, run: LiveAttempt) -> None:
        """Start the process of an attempt once its GPUs are free."""
        if self.links is None or not self.starts:
            return
        gpus = self._free_gpus(run.attempt.placement)
        if gpus is None:
            self._pending.append(run)
            return
        run_id = f"{run.name}.{secrets.token_hex(4)}"
        self._register(run, run_id, gpus)
        server, launcher, token = self.links
        environment = {**self._settings.environment, LINK: f"{launcher.host}:{server.port}/{token}"}
        if run.training.command is None:
            environment[REHEARSAL] = plan_rehearsal(run)
            environment[VARIABLE] = make_synthetic_devices(
                run, gpus, self._cluster, self._settings.folder / "devices", self._wall
            )
        command = run.training.command or (sys.executable, "-m", EMULATOR)
        launcher.start(LaunchRequest(run_id, command, environment, gpus))

    def recall(self, run: LiveAttempt) -> None:
        """Cancel the start of an attempt that has not begun; its process is killed."""
        if run in self._pending:
            self._pending.remove(run)
        elif run.run_id is not None:
            self.kill(run.run_id)
            run.run_id = None

    def stop(self, run_id: str) -> None:
        """Tell a process to save its state and exit."""
        if self.links is not None:
            self.links.server.stop(run_id)
            self._virtual_time.wake(run_id)

    def limit(self, run_id: str, limit_w: float) -> None:
        """Tell a process to train on at a power limit, W."""
        if self.links is not None:
            self.links.server.limit(run_id, limit_w)
            self._virtual_time.wake(run_id)

    def expect_exit(self, run_id: str | None) -> None:
        """Give a process that reported its end one lease to exit."""
        if self.links is not None and run_id is not None:
            self.links.server.stop(run_id, over=True)

    def kill(self, run_id: str) -> None:
        """Kill a process."""
        if self.links is not None:
            self.links.launcher.kill(run_id)

    def release(self, run_id: str) -> None:
        """Release the GPUs of a process that has exited, and start processes that need them."""
        self._held.pop(run_id, None)
        self._attempts.pop(run_id, None)
        if self.links is not None:
            self.links.server.forget(run_id)
        pending, self._pending = self._pending, []
        for run in pending:
            self.launch(run)
        self._virtual_time.note_exit(run_id)

    def take_over(self, runs: Iterable[LiveAttempt]) -> list[LiveAttempt]:
        """Adopt the processes of an earlier controller, and kill those without an attempt.

        Returns:
            The attempts that had begun and whose process has exited.
        """
        assert self.links is not None
        running, exited = self.links.launcher.adopt(), []
        for run in runs:
            if run.outcome is not None:
                continue
            candidates = [
                run_id
                for run_id in running
                if run_id.rpartition(".")[0] == run.name and run_id != run.stopped_run_id
            ]
            expected = run.run_id if run.begun else next(iter(candidates), None)
            if expected is not None and expected in running:
                self._register(run, expected, running.pop(expected))
                if run.paused:
                    self.stop(expected)
            elif run.begun:
                assert run.run_id is not None
                self._attempts[run.run_id] = run.attempt.job.job_id, run.attempt.number
                self._virtual_time.note_work(run.run_id)
                exited.append(run)
        for run_id, gpus in running.items():
            self._held[run_id] = gpus
            self._virtual_time.note_work(run_id)  # no time passes until its GPUs are free
            self.kill(run_id)
        return exited

    def close(self) -> None:
        """Kill all processes, and close the links."""
        if self.links is not None:
            self.links.launcher.close()
            self.links.server.close()

    def _register(self, run: LiveAttempt, run_id: str, gpus: tuple[Gpu, ...]) -> None:
        assert self.links is not None
        run.run_id = run_id
        self._held[run_id] = gpus
        self._attempts[run_id] = run.attempt.job.job_id, run.attempt.number
        self._virtual_time.note_work(run_id)
        self.links.server.expect(run_id, self._settings.lease_s)
        if run.power_limit_w is not None:
            self.links.server.limit(run_id, run.power_limit_w)

    def _free_gpus(self, placement: Placement) -> tuple[Gpu, ...] | None:
        """Free GPUs on the nodes of a placement; None if there are too few."""
        held = {gpu for gpus in self._held.values() for gpu in gpus}
        chosen: list[Gpu] = []
        for node, count, _ in placement:
            gpus = range(int(self._cluster.capacity[node]))
            free = [(node, gpu) for gpu in gpus if (node, gpu) not in held][:count]
            if len(free) < count:
                return None
            chosen += free
        return tuple(sorted(chosen))
