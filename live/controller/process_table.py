"""The processes of a live run: which attempt each one carries out, and which GPUs it holds."""

import secrets
import sys
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from wattkeeper.live.controller.attempt import LiveAttempt, LiveSettings, Standing
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.launchers.launcher import Gpu, Launcher, LaunchRequest
from wattkeeper.live.controller.launchers.local import format_gpus
from wattkeeper.live.controller.rehearsal import REHEARSAL, make_synthetic_devices, plan_rehearsal
from wattkeeper.live.controller.virtual_time import VirtualTime
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.wire.client import LINK
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.points.job import Placement
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.kernel.loop import Callback

EMULATOR: Final = "wattkeeper.live.controller.emulator"
"""The module that emulates trainings without a command."""


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


def attempt_of(run_id: str) -> tuple[str, int]:
    """Job and number of the attempt that a process carries out, by its id."""
    job_id, _, number = run_id.rpartition(".")[0].rpartition("#")
    return job_id, int(number or 0)


class ProcessTable:
    """Starts the processes of attempts, each once the GPUs of its placement are free.

    A GPU is given to another process only once the one that had it has exited.

    Processes start once the log of the run was processed, unless the run is being interrupted.

    Attributes:
        settings: Of the run.
        env: The environment of the run.
        links: None: no process is started.
        halting: Whether the run ends once all processes have exited.
        virtual_time: Passes while all processes sleep.
    """

    def __init__(self, cluster: ClusterSpec, settings: LiveSettings, env: LiveEnvironment) -> None:
        self.links: ExternalLinks | None = None
        self.halting = False
        self.virtual_time = VirtualTime(env)
        self.settings, self._cluster, self.env = settings, cluster, env
        self._held: dict[str, tuple[Gpu, ...]] = {}
        self._pending: list[LiveAttempt] = []

    def __bool__(self) -> bool:
        """Whether there is a process."""
        return bool(self._held)

    def __contains__(self, run_id: str | None) -> bool:
        return run_id in self._held

    @property
    def are_live(self) -> bool:
        """Whether processes can be started, rather than replayed from a log."""
        return self.links is not None and self.env.is_replayed

    def describe_gpus(self, run_id: str | None) -> str:
        """The GPUs of a process, as text; empty if it has none."""
        return "" if run_id is None else format_gpus(self._held.get(run_id, ()))

    def launch(self, run: LiveAttempt, delay_s: float = 0.0) -> None:
        """Start the process of an attempt once its GPUs are free.

        That of a rehearsal starts after a delay (s) and the choice of the parent; other trainings
        take that time themselves.
        """
        delay_s += run.query_s
        if delay_s and run.training.command is None:
            run.pending_start = Callback(self._launch_late, run)
            self.env.schedule_at(self.env.now_s + delay_s, run.pending_start)
        else:
            self._start(run)

    def _launch_late(self, run: LiveAttempt) -> None:
        run.pending_start, run.query_s = None, 0.0
        self._start(run)

    def _start(self, run: LiveAttempt) -> None:
        if self.links is None or not self.env.is_replayed or self.halting:
            return
        gpus = self._free_gpus(run.attempt.placement)
        if gpus is None:
            self._pending.append(run)
            return
        run_id = f"{run.name}.{secrets.token_hex(4)}"  # as `attempt_of` reads it
        self._register(run, run_id, gpus)
        server, launcher, token = self.links
        environment = {**self.settings.environment, LINK: f"{launcher.host}:{server.port}/{token}"}
        if run.training.command is None:
            environment[REHEARSAL] = plan_rehearsal(run)
            environment[VARIABLE] = make_synthetic_devices(
                run, gpus, self._cluster, self.settings.folder / "devices", self.env.wall
            )
        command = run.training.command or (sys.executable, "-m", EMULATOR)
        launcher.start(LaunchRequest(run_id, command, environment, gpus))

    def recall(self, run: LiveAttempt) -> None:
        """Cancel the start of an attempt that has not begun; its process is killed."""
        process, start = run.process, run.pending_start
        if start is not None:
            start.cancel()
            run.query_s = min(run.query_s, start.time_s - self.env.now_s)
            run.pending_start = None
        if run in self._pending:
            self._pending.remove(run)
        elif process.run_id is not None:
            self.kill(process.run_id)
            process.run_id = None

    def stop(self, run: LiveAttempt) -> None:
        """Tell the process of an attempt to save its state and exit."""
        run_id = run.process.run_id
        if self.links is not None and run_id is not None:
            self.links.server.stop(run_id)
            self.virtual_time.wake(run_id)

    def limit(self, run: LiveAttempt) -> None:
        """Tell the process of an attempt to train on at its power limit."""
        run_id, limit_w = run.process.run_id, run.power_limit_w
        if self.links is not None and run_id is not None and limit_w is not None:
            self.links.server.limit(run_id, limit_w)
            self.virtual_time.wake(run_id)

    def expect_exit(self, run: LiveAttempt) -> None:
        """Give the process of an attempt that reported its end one lease to exit."""
        if self.links is not None and run.process.run_id is not None:
            self.links.server.stop(run.process.run_id, over=True)

    def kill(self, run_id: str | None) -> None:
        """Kill a process."""
        if self.links is not None and run_id is not None:
            self.links.launcher.kill(run_id)

    def release(self, run_id: str) -> None:
        """Release the GPUs of a process that has exited, and start processes that need them."""
        self._held.pop(run_id, None)
        if self.links is not None:
            self.links.server.forget(run_id)
        pending, self._pending = self._pending, []
        for run in pending:
            self._start(run)
        self.virtual_time.note_exit(run_id)

    def halt(self, runs: Collection[LiveAttempt]) -> None:
        """Let all processes save their state and exit, then interrupt the run."""
        for run in runs:
            run.process.stop_sent |= run.process.begun
        if not self.env.is_replayed:  # the log continues after the halt
            return
        self.halting = True
        for run in runs:
            if not run.process.begun:
                self.recall(run)
            elif run.standing is not Standing.OVER:
                self.stop(run)
        self.interrupt_if_empty()

    def interrupt_if_empty(self) -> None:
        """Interrupt the run if it is being interrupted, and all processes have exited."""
        if self.halting and not self:
            raise KeyboardInterrupt

    def reply(self, ticket: Any, reply: Mapping[str, Any]) -> None:
        """Reply to a request of a process."""
        if self.links is not None:
            self.links.server.answer(ticket, {**reply, "now_s": self.env.now_s})

    def take_over(self, runs: Collection[LiveAttempt]) -> list[LiveAttempt]:
        """Adopt the processes of an earlier controller, and start those that are missing.

        Processes without an attempt are killed.

        Returns:
            The attempts that had begun and whose process has exited.
        """
        assert self.links is not None
        self.virtual_time.stop()
        running, exited = self.links.launcher.adopt(), []
        for run in runs:
            if run.outcome is not None:
                continue
            process = run.process
            candidates = [
                run_id
                for run_id in running
                if attempt_of(run_id) == run.key and run_id != run.stopped_run_id
            ]
            expected = process.run_id if process.begun else next(iter(candidates), None)
            if expected is not None and expected in running:
                self._register(run, expected, running.pop(expected))
                if run.standing is Standing.PAUSED:
                    self.stop(run)
            elif process.begun:
                assert process.run_id is not None
                self.virtual_time.note_work(process.run_id)
                exited.append(run)
        for run_id, gpus in running.items():
            self._held[run_id] = gpus
            self.virtual_time.note_work(run_id)  # no time passes until its GPUs are free
            self.kill(run_id)
        for run in runs:
            is_started = run.process.run_id is not None or run.pending_start is not None
            if run.standing is Standing.RUNNING and not is_started and run.outcome is None:
                self._start(run)
        return exited

    def close(self) -> None:
        """Kill all processes, and close the links."""
        if self.links is not None:
            self.links.launcher.close()
            self.links.server.close()

    def _register(self, run: LiveAttempt, run_id: str, gpus: tuple[Gpu, ...]) -> None:
        assert self.links is not None
        run.process.run_id = run_id
        self._held[run_id] = gpus
        self.virtual_time.note_work(run_id)
        self.links.server.expect(run_id, self.settings.lease_s)
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
