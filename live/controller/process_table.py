"""The processes of a live run: which attempt each one carries out, and which GPUs it holds."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from wattkeeper.live.controller.launchers.local import Gpu, Launcher, LaunchRequest, shown
from wattkeeper.live.controller.virtual_time import VirtualTime
from wattkeeper.live.controller.workloads import (
    REHEARSAL,
    REHEARSE,
    LiveAttempt,
    rehearsal_of,
    synthetic_devices,
)
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.wire.client import LINK
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.protocols import Placement
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec


class LiveSettings(NamedTuple):
    """What holds for a whole live run.

    Attributes:
        objective: What a job costs.
        folder: Where checkpoints, devices and output are kept.
        lease_s: A session is given up that is silent for so long, s of the host.
        environment: What every process finds in its environment.
    """

    objective: Objective
    folder: Path
    lease_s: float
    environment: Mapping[str, str]


class ExternalLinks(NamedTuple):
    """What reaches out of the controller; without it, a run is only played again.

    Attributes:
        server: Hears sessions.
        runner: Starts processes.
        token: What sessions must tell the server.
    """

    server: SessionServer
    runner: Launcher
    token: str


class ProcessTable:
    """Starts the processes of attempts, each once the GPUs of its placement are free.

    A GPU is given to another process only once the one that had it is gone.

    Args:
        cluster: Where.
        setting: What holds for the run.
        wall: The time of synthetic devices.
        standstill: Is told who works.

    Attributes:
        hands: None: nothing is started.
        starts: Whether anything is started now.
    """

    def __init__(
        self, cluster: ClusterSpec, setting: LiveSettings, wall: WallClock, standstill: VirtualTime
    ) -> None:
        self.hands: ExternalLinks | None = None
        self.starts = False
        self._cluster, self._setting = cluster, setting
        self._wall, self._standstill = wall, standstill
        self._held: dict[str, tuple[Gpu, ...]] = {}
        self._attempts: dict[str, tuple[str, int]] = {}
        self._pending: list[LiveAttempt] = []

    def __bool__(self) -> bool:
        """Whether a process is there."""
        return bool(self._held)

    def __contains__(self, run_id: str | None) -> bool:
        return run_id in self._held

    def attempt_of(self, run_id: str) -> tuple[str, int]:
        """Job and number of the attempt that a process carries out; any thread may ask."""
        return self._attempts.get(run_id, ("", 0))

    def shown(self, run_id: str | None) -> str:
        """The GPUs of a process, as text; empty if it has none."""
        return "" if run_id is None else shown(self._held.get(run_id, ()))

    def launch(self, run: LiveAttempt) -> None:
        """Start its process, or have it wait for GPUs that another one still has."""
        if self.hands is None or not self.starts:
            return
        gpus = self._free_gpus(run.attempt.placement)
        if gpus is None:
            self._pending.append(run)
            return
        run_id = f"{run.name}.{secrets.token_hex(4)}"
        self._has(run, run_id, gpus)
        server, runner, token = self.hands
        environment = {**self._setting.environment, LINK: f"{runner.host}:{server.port}/{token}"}
        if run.training.command is None:
            environment[REHEARSAL] = rehearsal_of(run)
            environment[VARIABLE] = synthetic_devices(
                run, gpus, self._cluster, self._setting.folder / "devices", self._wall
            )
        runner.start(LaunchRequest(run_id, run.training.command or REHEARSE, environment, gpus))

    def recall(self, run: LiveAttempt) -> None:
        """Have no process of an attempt begin that none has begun yet."""
        if run in self._pending:
            self._pending.remove(run)
        elif run.id is not None:
            self.kill(run.id)
            run.id = None

    def stop(self, run_id: str) -> None:
        """Have a process save its state and end."""
        if self.hands is not None:
            self.hands.server.stop(run_id)
            self._standstill.rouse(run_id)

    def over(self, run_id: str | None) -> None:
        """A process said that it is over: it has a lease to end."""
        if self.hands is not None and run_id is not None:
            self.hands.server.over(run_id)

    def kill(self, run_id: str) -> None:
        """End a process at once."""
        if self.hands is not None:
            self.hands.runner.kill(run_id)

    def exited(self, run_id: str) -> None:
        """A process is gone: others may have its GPUs."""
        self._held.pop(run_id, None)
        self._attempts.pop(run_id, None)
        if self.hands is not None:
            self.hands.server.forget(run_id)
        pending, self._pending = self._pending, []
        for run in pending:
            self.launch(run)
        self._standstill.leave(run_id)

    def take_over(self, runs: Iterable[LiveAttempt]) -> list[LiveAttempt]:
        """Go on with the processes of an earlier controller, end those that nobody wants any more.

        Returns:
            The runs whose process is gone, though it had begun.
        """
        assert self.hands is not None
        found, gone = self.hands.runner.found(), []
        for run in runs:
            if run.outcome is not None:
                continue
            mine = [
                each
                for each in found
                if each.rpartition(".")[0] == run.name and each != run.stopped
            ]
            wanted = run.id if run.begun else next(iter(mine), None)
            if wanted in found:
                assert wanted is not None
                self._has(run, wanted, found.pop(wanted))
                if run.paused:
                    self.stop(wanted)
            elif run.begun:
                assert run.id is not None
                self._attempts[run.id] = run.attempt.job.job_id, run.attempt.number
                self._standstill.rise(run.id)
                gone.append(run)
        for each, gpus in found.items():
            self._held[each] = gpus
            self.kill(each)
        return gone

    def close(self) -> None:
        """End all processes that are left, and hang up."""
        if self.hands is not None:
            self.hands.runner.close()
            self.hands.server.close()

    def _has(self, run: LiveAttempt, run_id: str, gpus: tuple[Gpu, ...]) -> None:
        assert self.hands is not None
        run.id = run_id
        self._held[run_id] = gpus
        self._attempts[run_id] = run.attempt.job.job_id, run.attempt.number
        self._standstill.rise(run_id)
        self.hands.server.expect(run_id, self._setting.lease_s)

    def _free_gpus(self, placement: Placement) -> tuple[Gpu, ...] | None:
        """GPUs that no process has, where the world placed an attempt; None: not all are free."""
        taken = {gpu for gpus in self._held.values() for gpu in gpus}
        chosen: list[Gpu] = []
        for node, many, _ in placement:
            there = range(int(self._cluster.capacity[node]))
            free = [(node, gpu) for gpu in there if (node, gpu) not in taken][:many]
            if len(free) < many:
                return None
            chosen += free
        return tuple(sorted(chosen))
