"""The backend of live runs: trainings are processes that report their progress."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wattkeeper.live.controller.crash_loop import CrashLoopGuard
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import ExternalEvent
from wattkeeper.live.controller.process_table import LiveSettings, ProcessTable
from wattkeeper.live.controller.progress import Watch, progress_of
from wattkeeper.live.controller.virtual_time import VirtualTime
from wattkeeper.live.controller.weights import discard_weights
from wattkeeper.live.controller.workloads import (
    NOTHING,
    LiveAttempt,
    Trainings,
    TrainingSpec,
    choose_recorded_run,
)
from wattkeeper.live.signals.live_signal import LiveSignal, TimedValue
from wattkeeper.live.wire.messages import AttemptResult, EpochReport
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import FIRST
from wattkeeper.policies.points.views import Measurement, Options, Slice
from wattkeeper.sim.attempts.attempt import (
    NO_SLICES,
    Attempt,
    Decision,
    Execution,
    Inheritance,
    Tuned,
    Untuned,
)
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.backend import SIMULATED, Backend
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.recorded import replay_recorded
from wattkeeper.sim.replay.unprofiled import UnprofiledPower
from wattkeeper.traces.files.names import file_name

SHORTEST_SETUP_S: Final = 1e-6
"""Less is rounding, s: rehearsals set nothing up."""


class AttemptEnding(NamedTuple):
    """The result of an attempt, which tables of the simulator do not hold."""

    job_id: str
    attempt: int
    outcome: AttemptResult


LIVE: Final = SIMULATED._replace(
    host="a live run", moments=(*FIRST, "epoch", "signal", "wake", "reached"), foresight=False
)
"""What live runs offer to policies."""


class LiveBackend(Backend):
    """Runs attempts in processes, and reports to the world (`wattkeeper.sim.engine.backend`).

    An attempt begins when its session does; until then, and until its first epoch begins, it holds
    its GPUs idle. One that crashed, failed, hung or stayed silent is lost, and the world retries
    it. A GPU is given to another process only once the one that had it has exited.

    The streams choose the recorded run of a rehearsal. `watch` is called with the progress of each
    attempt, once the log was replayed. `signals` take over the values that arrive.
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
        self._signals = signals
        self._watch = watch
        self.endings: list[AttemptEnding] = []
        self._trainings, self._unprofiled = trainings, unprofiled
        self._streams, self._settings = streams, settings
        self._runs: dict[tuple[str, int], LiveAttempt] = {}
        self._epochs_needed: dict[str, float] = {}
        self._lost_before = Counter[str]()
        self._failures = CrashLoopGuard(settings.folder / "output")
        self._active = self._halting = False
        self._discarded: set[str] = set()
        self._waiting_tickets = defaultdict[tuple[str, int], list[Any]](list)
        self._virtual_time = VirtualTime(env, self._wake_up)
        self.processes = ProcessTable(cluster, settings, env.wall, self._virtual_time)
        env.is_repeated, env.reply = self._is_repeated, self._reply_to
        env.process_external, env.expects_external = self._process_external, self._expects_external
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
        job = attempt.job
        training = self._training(job, attempt.gpu_type)
        run = LiveAttempt(attempt, decision, inheritance, training, self, inheritance.query_s)
        self._choose_recorded_run(run)
        self._runs[job.job_id, attempt.number] = run
        return run

    def discard(self, models: tuple[str, ...]) -> None:
        """Remove the weights of models, once no attempt starts from them."""
        self._discarded.update(models)
        if self._settings.zoo is None or not self._active or self.processes.links is None:
            return
        parents = {run.decision.configuration.parent for run in self._runs.values() if not run.over}
        discard_weights(self._settings.zoo, self._discarded - parents)
        self._discarded &= parents

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """Start its process once its GPUs are free; report an end that came while it waited."""
        run.paused = False
        self._note_idle(run)
        if run.outcome is not None:
            self.env.schedule_at(self.env.now_s, Callback(self._finish, run))
        elif not run.begun:
            self._launch(run, delay_s)

    def pause(self, run: LiveAttempt) -> None:
        """Tell its process to save its state and exit."""
        run.paused = True
        self._report_progress(run, "waits")
        if run.begun:
            run.stop_sent = True
            if run.run_id is not None:
                self.processes.stop(run.run_id)
            return
        if run.pending_start is not None:
            run.pending_start.cancel()
            run.query_s = min(run.query_s, run.pending_start.time_s - self.env.now_s)
            run.pending_start = None
        self.processes.recall(run)

    def stop(self, run: LiveAttempt) -> None:
        """End the attempt: once its process has reported its end, or now if it has none."""
        run.is_stopping = True
        if run.begun and not run.paused and run.run_id is not None:
            self.processes.stop(run.run_id)
            return
        run.paused = False
        last = run.last
        run.outcome = AttemptResult("ended", last.epoch, last.time_s, last.energy_j)
        self._finish(run)

    def limit(self, run: LiveAttempt) -> None:
        """Tell its process to train at its power limit."""
        if run.begun and not run.paused and run.run_id is not None:
            assert run.power_limit_w is not None
            self.processes.limit(run.run_id, run.power_limit_w)

    @property
    def unfinished(self) -> bool:
        """Whether an attempt has not ended."""
        return any(not run.over for run in self._runs.values())

    # External events.

    def post(self, run: str, kind: str, payload: Mapping[str, Any], ticket: Any) -> None:
        """Queue an event of a session or its process; thread-safe."""
        job_id, attempt = self.processes.attempt_of(run)
        now_s = self.env.wall.now_s()
        self.env.post(ExternalEvent(now_s, job_id, attempt, run, kind, payload, ticket))

    def halt(self) -> None:
        """Let all trainings save their state, then interrupt the run; safe in signal handlers."""
        if self.processes.links is not None:
            self.processes.links.server.later(lambda: self.post("", "halt", {}, None))

    def exited(self, run: str, code: int | None) -> None:
        """Queue the exit of a process; thread-safe."""
        self.post(run, "lost", {"cause": "crashed", "code": code}, None)
        self.post(run, "exited", {}, None)

    def _expects_external(self) -> bool:
        if self.processes.links is None:
            return False
        may_resume = bool(self._signals)  # a value that arrives may end a pause
        return bool(self.processes) or any(
            not run.over and (may_resume or not run.paused) for run in self._runs.values()
        )

    def _is_repeated(self, event: ExternalEvent) -> bool:
        if event.kind == "halt":
            return self._halting
        if event.kind == "signal":
            return False
        run = self._runs.get((event.job_id, event.attempt))
        payload = event.payload
        if run is None or run.run_id != event.run or run.over or payload.get("rank"):
            return True
        if self._refuses(run, event):  # logged, it would end each run that reads the log
            return True
        if event.kind == "begun":
            return run.begun
        if event.kind == "profiled":
            return bool(payload["report"] < run.reports)
        if event.kind == "epoch":
            return bool(payload["epoch"] <= run.process_epoch)
        return event.kind not in {"ended", "lost"}

    def _refuses(self, run: LiveAttempt, event: ExternalEvent) -> bool:
        """Whether an event contradicts the state of its attempt; only rank 0 reports."""
        return not (event.payload.get("rank") or run.may_report(event.kind, event.payload))

    def _process_external(self, event: ExternalEvent) -> None:
        """Report an event to the world, and reply."""
        if event.kind == "halt":
            self._halt()
        if event.kind in {"halt", "woken"}:
            return
        if event.kind == "signal":
            payload = event.payload
            timed = TimedValue(payload["since_s"], payload["value"])
            if self._signals[payload["name"]].receive(timed):
                self.listener.signal_arrived()
            return
        run = self._runs[event.job_id, event.attempt]
        run.run_id = event.run
        if event.kind == "begun":
            run.begun = True
            self._failures.note_session(str(run.attempt.job.workload))
            run.is_set_up = False
            if not run.paused:
                run.since_s = self.env.now_s
                run.attempt.train(run.since_s)
                self._report_progress(run, "trains")
                self._note_training(run)
        elif event.kind == "profiled":
            self._handle_profile(run, event.payload)
        elif event.kind == "epoch":
            self._account(run, EpochReport(*map(event.payload.__getitem__, EpochReport._fields)))
            run.process_epoch = run.last.epoch
            self._failures.note_epoch(str(run.attempt.job.workload))
            if not run.paused:
                self._report_progress(run, "trains")
            self._ask_after_epoch(run)
            run.replies.setdefault(run.process_epoch, self._continues(run))
        elif event.kind == "ended":
            self._handle_end(
                run, AttemptResult(*map(event.payload.__getitem__, AttemptResult._fields))
            )
        else:
            self._handle_loss(run, event.payload)
        if event.ticket is not None:
            self._reply_to(event)

    def _reply_to(self, event: ExternalEvent) -> None:
        run = self._runs.get((event.job_id, event.attempt))
        if event.kind == "broken":
            raise RuntimeError(f"the link broke: {event.payload['error']}")
        if event.kind == "exited":
            self.processes.release(event.run)
            self._failures.note_exit(run, event.run, refuse=self._active)
            if run is not None and run.over:
                self._runs.pop((event.job_id, event.attempt), None)
            self._interrupt_if_empty()
        elif event.kind == "lost":
            if event.payload["cause"] != "crashed":  # it reported its end, but did not exit
                self.processes.kill(event.run)
            elif (event.payload["code"] or 0) <= 0:  # its script failed, and then was killed
                self._failures.forget_failure(event.run)
        elif event.kind == "sleep":
            until_s, known_w = map(event.payload.__getitem__, ("until_s", "power_limit_w"))
            is_due = run and (run.paused or run.is_stopping or self._knows_other(run, known_w))
            self._virtual_time.sleep(event.run, self.env.now_s if is_due else until_s, event.ticket)
        elif event.kind == "ended" and run is not None and run.stopped_run_id == event.run:
            self._reply(event.ticket, {})  # another process goes on
        elif run is None or run.run_id != event.run or self._refuses(run, event):
            self._reply(event.ticket, {"gone": True})
        elif event.kind == "begun":
            where = self._settings.folder / "checkpoints" / f"{file_name(run.name)}.state"
            assignment = run.assignment(
                self._settings.objective.eta,
                str(where),
                self._settings.lease_s,
                self._settings.zoo,
                self.listener.retunes,
                self.listener.wants_slices,
            )
            self._reply(event.ticket, {"assignment": assignment._asdict()})
        elif event.kind == "profiled":
            piece = run.slice
            if piece is not None or run.reached:
                self._reply(event.ticket, {"slice": piece})
            elif run.power_limit_w is None:  # another process of the training measures
                self._waiting_tickets[event.job_id, event.attempt].append(event.ticket)
            else:
                self._reply(event.ticket, {"power_limit_w": run.power_limit_w})
        elif event.kind == "epoch":
            continues = run.replies.setdefault(int(event.payload["epoch"]), self._continues(run))
            self._reply(event.ticket, {"goes_on": continues, "power_limit_w": run.power_limit_w})
        else:
            self._reply(event.ticket, {})

    def _reply(self, ticket: Any, reply: dict[str, Any]) -> None:
        if self.processes.links is not None:
            self.processes.links.server.answer(ticket, {**reply, "now_s": self.env.now_s})

    def _wake_up(self, run_id: str, ticket: Any) -> None:
        """Reply to a process at the end of its sleep.

        Where knobs change, the log has the time: a controller that goes on with the run must not
        put its clock back to before a change that the process knows.
        """
        job_id, number = self.processes.attempt_of(run_id)
        run = self._runs.get((job_id, number))
        if run is None or run.run_id != run_id:
            self._reply(ticket, {"goes_on": False})
            return
        if self.listener.retunes:
            self.env.log.add(ExternalEvent(self.env.now_s, job_id, number, run_id, "woken", {}))
        goes_on = self._continues(run) and not run.stop_sent
        self._reply(ticket, {"goes_on": goes_on, "power_limit_w": run.power_limit_w})

    # Reports to the world.

    def _note_training(self, run: LiveAttempt) -> None:
        if isinstance(run.decision, Tuned):
            self.listener.trains(run.attempt)

    def _ask_after_epoch(self, run: LiveAttempt) -> None:
        """Ask what changes, unless its end follows, or its limit was chosen in this epoch."""
        is_whole = not run.last.is_last and run.last.epoch != run.profiled_epoch
        if self.listener.wants_epochs and run.is_training and is_whole:
            self.listener.epoch_ended(run.attempt)

    def _handle_profile(self, run: LiveAttempt, payload: Mapping[str, Any]) -> None:
        attempt, decision = run.attempt, run.decision
        report = run.normalise(payload["measurements"])
        run.reports += 1
        if run.slice is not None or payload["reached"]:
            self._account(
                run, run.last._replace(time_s=payload["time_s"], energy_j=payload["energy_j"])
            )
        for measured in report:
            if measured.batch_size:
                run.slices = run.slices.add(measured.spent_s, measured.spent_j, run.reached)
        if payload["reached"]:
            run.reached = True
            run.probe = self._ask_for_slice(run, report)
            return
        if isinstance(decision, Untuned):
            run.decision = self.listener.measured(decision, report)
            if isinstance(run.decision, Tuned):
                fastest = max(decision.measured + report)
                run.fastest_s = fastest.time_per_epoch_s * run.scale
                run.profiled_epoch = run.process_epoch + 1
                if not run.paused:
                    self._note_training(run)
        for ticket in self._waiting_tickets.pop((attempt.job.job_id, attempt.number), []):
            self._reply(ticket, {"power_limit_w": run.power_limit_w})

    def _ask_for_slice(self, run: LiveAttempt, report: tuple[Measurement, ...]) -> Slice | None:
        """Ask for a slice of another batch size, which a power cap may forbid."""
        if run.is_stopping:
            return None
        piece = self.listener.reached(run.attempt, report)
        if piece is None or piece.batch_size is None:
            return None
        profile, gpus = run.training.profile, run.training.options.gpus
        power_w = piece.power_limit_w * gpus
        if profile is not None:
            epoch_s, epoch_j = profile.curves[piece.batch_size].epoch(piece.power_limit_w)
            power_w = epoch_j / epoch_s
        return piece if self.listener.allows(run.attempt, power_w) else None

    def _account(self, run: LiveAttempt, now: EpochReport) -> None:
        """Report the mean power since the last report."""
        if not run.process_epoch and now.time_s < run.saved.time_s:
            # It starts over: its last state was not saved.
            run.attempt.add_overhead(run.saved.time_s, run.saved.energy_j or 0.0)
            run.last = run.saved = NOTHING
            run.slices = NO_SLICES
        before, now_s = run.last, self.env.now_s
        run.last = now
        if run.paused:
            return
        self._count_setup(run, now.time_s - before.time_s)
        spent_j = (now.energy_j or 0.0) - (before.energy_j or 0.0)
        if spent_j > 0 and now_s > run.since_s:
            power_w, settled = spent_j / (now_s - run.since_s), isinstance(run.decision, Tuned)
            self.listener.draws(run.attempt, power_w, run.since_s, settled)
            run.since_s = now_s

    def _count_setup(self, run: LiveAttempt, trained_s: float) -> None:
        """Count what a process did between its session's begin and its first epoch as overhead."""
        if run.is_set_up or trained_s <= 0:
            return
        run.is_set_up = True
        setup_s = self.env.now_s - run.since_s - trained_s
        if setup_s > SHORTEST_SETUP_S:
            run.attempt.add_overhead(setup_s, setup_s * run.attempt.idle_w)
            run.since_s += setup_s

    def _continues(self, run: LiveAttempt) -> bool:
        return not (run.paused or run.is_stopping or self._halting)

    def _knows_other(self, run: LiveAttempt, known_w: float | None) -> bool:
        """Whether a process takes another power limit for the one in force."""
        return known_w is not None and run.power_limit_w not in (None, known_w)

    def _handle_end(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        metric = run.last.metric
        progress = EpochReport(outcome.epochs, metric, outcome.time_s, outcome.energy_j)
        self._account(run, progress)
        self.processes.expect_exit(run.run_id)
        if run.is_stopping and outcome.cause in {"stopped", "failed"}:
            run.outcome = outcome._replace(cause="ended")
            self._finish(run)
        elif outcome.cause == "stopped" and (run.stop_sent or progress.epoch > run.saved.epoch):
            run.saved = progress
            run.detach_process()
            if not run.paused:  # it resumes already, or stopped on its own
                self._note_idle(run)
                self._launch(run)
        elif outcome.cause in {"failed", "stopped"}:
            if outcome.cause == "failed":
                assert run.run_id is not None
                self._failures.note_failure(run.run_id, outcome)
            self._give_up(run, outcome)
        else:
            run.outcome = outcome
            if not run.paused:
                self._finish(run)

    def _finish(self, run: LiveAttempt) -> None:
        outcome = run.outcome
        if outcome is None or run.paused or run.over:
            return
        run.over = True
        without_target = run.training.target is None and run.training.command is not None
        done = without_target and outcome.cause in {"epochs", "left"}
        self._forget(run, outcome)
        reached = done or outcome.cause == "reached"
        run.decision = tuned = self._at_one_limit(run, outcome)
        self.listener.ended(run.attempt, tuned, run.totals(outcome, reached))

    def _at_one_limit(self, run: LiveAttempt, outcome: AttemptResult) -> Tuned:
        """The decision with a power limit: if profiling did not end, the highest one was in force.

        With that limit alone to profile, the attempt is its measurement.
        """
        decision = run.decision
        if isinstance(decision, Tuned):
            return decision
        limits = run.training.options.limits(decision.batch_size)
        if decision.profile_w == limits[-1:] and outcome.epochs and outcome.energy_j is not None:
            epoch_s, power_w = outcome.time_s / outcome.epochs, outcome.energy_j / outcome.time_s
            report = run.normalise([[limits[-1], epoch_s, power_w]])
            tuned = self.listener.measured(decision, report)
            assert isinstance(tuned, Tuned)
            return tuned
        return decision.at_present_limit()

    def _handle_loss(self, run: LiveAttempt, payload: Mapping[str, Any]) -> None:
        assert run.run_id is not None
        if payload["cause"] != "crashed":
            self.processes.kill(run.run_id)
        if run.outcome is not None:
            return
        if run.reached:  # only slices of other batch sizes are lost
            last = run.last
            run.outcome = AttemptResult("reached", last.epoch, last.time_s, last.energy_j)
            if not run.paused:
                self._finish(run)
            return
        if run.is_stopping:
            last = run.last
            run.outcome = AttemptResult("ended", last.epoch, last.time_s, last.energy_j)
            self._finish(run)
            return
        if run.paused:
            run.detach_process()
            return
        last, cause, code = run.last, payload["cause"], payload.get("code")
        if not run.begun and code is not None and code >= 0:  # else it was killed
            workload = str(run.attempt.job.workload)
            self._failures.note_early_exit(workload, run.run_id, code, refuse=self._active)
        message = "" if code is None else f"exit code {code}"
        if cause != "crashed":
            reason = (
                "it made no Session within" if cause == "silent" else "its Session was silent for"
            )
            message = f"{reason} {self._settings.lease_s:g} s (live.lease_s)"
        outcome = AttemptResult(cause, last.epoch, last.time_s, last.energy_j, message=message)
        if cause != "crashed" or (run.begun and code is not None and code > 0):
            self._failures.note_failure(run.run_id, outcome)
        self._give_up(run, outcome)

    def _give_up(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        run.over = True
        attempt = run.attempt
        self._forget(run, outcome)
        self._epochs_needed[attempt.job.job_id] = run.epochs_needed
        self._lost_before[attempt.job.job_id] += 1
        self.listener.lost(attempt, run.decision, run.totals(outcome, False))

    def _forget(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        attempt = run.attempt
        self.endings.append(AttemptEnding(attempt.job.job_id, attempt.number, outcome))
        self._report_progress(run, outcome)
        if run.run_id not in self.processes:
            self._runs.pop((attempt.job.job_id, attempt.number), None)

    def _choose_recorded_run(self, run: LiveAttempt) -> None:
        """Choose the recorded run of a rehearsal.

        The retry of a lost attempt repeats its run; later ones are chosen as if none was lost.
        """
        job_id = run.attempt.job.job_id
        lost = self._epochs_needed.pop(job_id, None)
        if lost is None:
            choose_recorded_run(run, run.attempt.number - self._lost_before[job_id], self._streams)
        else:
            run.epochs_needed = lost

    def _note_idle(self, run: LiveAttempt) -> None:
        run.since_s = self.env.now_s
        self.listener.holds(run.attempt)

    # Processes.

    def _halt(self) -> None:
        for run in self._runs.values():
            run.stop_sent |= run.begun
        if not self._active:  # the log continues after the halt
            return
        self._halting, self.processes.starts = True, False
        for run in self._runs.values():
            if not run.begun:
                self.processes.recall(run)
            elif run.run_id is not None and not run.over:
                self.processes.stop(run.run_id)
        self._interrupt_if_empty()

    def _interrupt_if_empty(self) -> None:
        if self._halting and not self.processes:
            raise KeyboardInterrupt

    def _launch(self, run: LiveAttempt, delay_s: float = 0.0) -> None:
        """Start its process; that of a rehearsal after the delay and the choice of the parent.

        Other trainings take that time themselves.
        """
        delay_s += run.query_s
        if delay_s and run.training.command is None:
            run.pending_start = Callback(self._launch_late, run)
            self.env.schedule_at(self.env.now_s + delay_s, run.pending_start)
        else:
            self.processes.launch(run)
        self._report_progress(run, "starts")

    def _report_progress(
        self, run: LiveAttempt, state: Literal["starts", "trains", "waits"] | AttemptResult
    ) -> None:
        if self._active:
            self._watch(progress_of(run, state, self.processes.describe_gpus(run.run_id)))

    def _launch_late(self, run: LiveAttempt) -> None:
        run.pending_start, run.query_s = None, 0.0
        self.processes.launch(run)

    def _finish_replay(self) -> None:
        """Adopt running processes once the log was replayed, and start those that are missing."""
        for key in [key for key, run in self._runs.items() if run.over]:
            del self._runs[key]
        self._active = self.processes.starts = True
        if self.processes.links is None:
            return
        self._virtual_time.stop()
        for run in self.processes.take_over(self._runs.values()):
            assert run.run_id is not None
            self.exited(run.run_id, None)
        for run in list(self._runs.values()):
            if not (run.run_id or run.pending_start or run.outcome or run.paused):
                self.processes.launch(run)
        self.processes.links.server.listen()
        for run in self._runs.values():
            self._report_progress(
                run, "waits" if run.paused else "trains" if run.begun else "starts"
            )
