"""The backend of live runs: trainings are processes that report their progress."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from wattkeeper.live.controller.accounting import Accounting
from wattkeeper.live.controller.attempt import (
    LiveAttempt,
    LiveSettings,
    Notices,
    Standing,
    Trainings,
    TrainingSpec,
)
from wattkeeper.live.controller.crash_loop import CrashLoopGuard
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.events import (
    Event,
    Exited,
    ExternalEvent,
    Halted,
    SignalArrived,
    Woken,
)
from wattkeeper.live.controller.lifecycle import AttemptLifecycle
from wattkeeper.live.controller.process_table import ProcessTable, attempt_of
from wattkeeper.live.controller.progress import ProgressReporter, Watch
from wattkeeper.live.controller.rehearsal import RecordedRuns
from wattkeeper.live.controller.reports import TrainingReports
from wattkeeper.live.controller.weights import DiscardedWeights
from wattkeeper.live.signals.live_signal import LiveSignal, TimedValue
from wattkeeper.live.wire.messages import AttemptResult, Broken, Lost
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.views import Options
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import Decision, Inheritance
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.backend import SIMULATED, Backend
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.recorded import replay_recorded
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

LIVE: Final = SIMULATED._replace(
    host="a live run",
    moments=(*START_MOMENTS, "epoch", "signal", "wake", "reached"),
    foresight=False,
)
"""What live runs offer to policies."""


class LiveBackend(Backend):
    """Runs attempts in processes, and reports to the world (`wattkeeper.sim.engine.backend`).

    An attempt begins when its session does; until then, and until its first epoch begins, it holds
    its GPUs idle. One that crashed, failed, hung or stayed silent is lost, and the world retries
    it. A GPU is given to another process only once the one that had it has exited.

    The streams choose the recorded run of a rehearsal. `watch` is called with the progress of each
    attempt, once the log was replayed. `signals` take over the values that arrive.

    Attributes:
        env: The environment of the run.
        processes: The processes of its attempts.
        lifecycle: Starts and ends its attempts.
    """

    capabilities = LIVE

    def __init__(
        self,
        env: LiveEnvironment,
        trainings: Trainings,
        cluster: ClusterSpec,
        streams: RandomStreams,
        settings: LiveSettings,
        unprofiled: UnprofiledPower,
        watch: Watch = lambda _: None,
        signals: Mapping[str, LiveSignal] = MappingProxyType({}),
    ) -> None:
        self.env = env
        self._trainings, self._unprofiled, self._signals = trainings, unprofiled, signals
        self._runs: dict[tuple[str, int], LiveAttempt] = {}
        self._discarded = DiscardedWeights()
        self._recorded_runs = RecordedRuns(streams)
        self.processes = ProcessTable(cluster, settings, env)
        self._report_progress = ProgressReporter(watch, self.processes)
        failures = CrashLoopGuard(settings.folder / "output", env)
        accounting = Accounting(self, env)
        self.lifecycle = AttemptLifecycle(
            self,
            self._runs,
            self.processes,
            accounting,
            failures,
            self._recorded_runs,
            self._report_progress,
        )
        reports = TrainingReports(self, self.processes, accounting, failures, self._report_progress)
        self._changes = {**self.lifecycle.changes, **reports.changes}
        self._answers = {**self.lifecycle.answers, **reports.answers}
        self._notices: Notices = {
            **self.lifecycle.notices,
            **reports.notices,
            Broken: _raise_broken,
        }
        env.is_repeated, env.reply = self._is_repeated, self._answer
        env.process_external, env.expects_external = self._process, self._expects_external
        env.finish_replay = self._finish_replay

    # Called by the world.

    def _training(self, job: Job, gpu_type: str) -> TrainingSpec:
        return self._trainings[str(job.workload), job.gpus, gpu_type]

    def options(self, job: Job, gpu_type: str) -> Options:
        """Batch sizes and power limits that the workload's training may be given."""
        if job.workload is None:
            return self._unprofiled.options(job, gpu_type)
        return self._training(job, gpu_type).options

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """The largest mean power of the profile; without one, the largest limit."""
        if job.workload is None:
            return self._unprofiled.power_w(job, gpu_type)
        training = self._training(job, gpu_type)
        if training.profile is None:
            return training.options.max_power_w * job.gpus
        return training.profile.most_power_w

    def run(self, attempt: Attempt, inheritance: Inheritance, limit_w: float) -> Execution:
        """Let the recorded time of a job without a workload pass."""
        return replay_recorded(self, self.env, attempt, inheritance, self._unprofiled, limit_w)

    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Train in a process."""
        training, query_s = self._training(attempt.job, attempt.gpu_type), inheritance.query_s
        run = LiveAttempt(attempt, decision, inheritance, training, self.lifecycle, query_s)
        self._recorded_runs.choose(run)
        self._runs[run.key] = run
        return run

    def discard(self, models: tuple[str, ...]) -> None:
        """Remove the weights of models, once no attempt starts from them."""
        self._discarded.add(models)
        folder = self.processes.settings.zoo
        if folder is not None and self.processes.are_live:
            self._discarded.remove(folder, self._runs.values())

    @property
    def unfinished(self) -> bool:
        """Whether an attempt has not ended."""
        return any(run.standing is not Standing.OVER for run in self._runs.values())

    # Events from outside.

    def post(self, run: str, event: Event, ticket: Any = None, rank: int = 0) -> None:
        """Queue an event of a session or its process; thread-safe."""
        job_id, attempt = attempt_of(run)
        now_s = self.env.wall.now_s()
        self.env.post(ExternalEvent(now_s, job_id, attempt, run, event, ticket, rank))

    def halt(self) -> None:
        """Let all trainings save their state, then interrupt the run; safe in signal handlers."""
        if self.processes.links is not None:
            self.processes.links.server.later(lambda: self.post("", Halted()))

    def exited(self, run: str, code: int | None) -> None:
        """Queue the exit of a process; thread-safe."""
        self.post(run, Lost("crashed", code))
        self.post(run, Exited())

    def _expects_external(self) -> bool:
        if self.processes.links is None:
            return False
        awaited = {Standing.RUNNING}
        if self._signals:  # a value that arrives may end a pause
            awaited.add(Standing.PAUSED)
        return bool(self.processes) or any(run.standing in awaited for run in self._runs.values())

    def _find(self, external: ExternalEvent) -> LiveAttempt | None:
        """The attempt that an event concerns."""
        return self._runs.get((external.job_id, external.attempt))

    def _is_repeated(self, external: ExternalEvent) -> bool:
        """Whether an event changes no state, so that it only needs a reply."""
        run, event = self._find(external), external.event
        match event:
            case Halted():
                return self.processes.halting
            case SignalArrived():
                return False
        if run is None or run.process.run_id != external.run or run.standing is Standing.OVER:
            return True
        # What contradicts the state would, once logged, end each run that reads the log.
        return bool(external.rank) or not (run.may_report(event) and run.changes_by(event))

    def _process(self, external: ExternalEvent) -> None:
        """Process an event that changes the state, which is in the log, and reply."""
        match external.event:
            case Halted():
                self.processes.halt(self._runs.values())
            case SignalArrived(name, since_s, value):
                if self._signals[name].receive(TimedValue(since_s, value)):
                    self.listener.signal_arrived()
            case Woken():
                pass
            case event:
                run = self._runs[external.job_id, external.attempt]
                run.process.run_id = external.run
                self._changes[type(event)](run, event)
                if external.ticket is not None:
                    self._answer(external)

    def _answer(self, external: ExternalEvent) -> None:
        """Reply to an event, and note those that change no attempt."""
        run, event, ticket = self._find(external), external.event, external.ticket
        notice = self._notices.get(type(event))
        if notice is not None:
            notice(run, event, external)
            return
        reply: Mapping[str, Any] | None = {"gone": True}
        if run is None:
            pass
        elif run.process.run_id == external.run and (external.rank or run.may_report(event)):
            reply = self._answers[type(event)](run, event, ticket)
        elif isinstance(event, AttemptResult) and run.stopped_run_id == external.run:
            reply = {}  # another process continues
        if reply is not None:
            self.processes.reply(ticket, reply)

    def _finish_replay(self) -> None:
        """Adopt running processes once the log was replayed, and start those that are missing."""
        for key, run in list(self._runs.items()):
            if run.standing is Standing.OVER:
                del self._runs[key]
        if self.processes.links is None:
            return
        for run in self.processes.take_over(self._runs.values()):
            self.exited(str(run.process.run_id), None)
        self.processes.links.server.listen()
        for run in self._runs.values():
            if run.standing is Standing.PAUSED:
                self._report_progress(run, "waits")
            else:
                self._report_progress(run, "trains" if run.process.begun else "starts")


def _raise_broken(_: object, broken: Broken, _external: object) -> None:
    raise RuntimeError(f"the link broke: {broken.error}")
