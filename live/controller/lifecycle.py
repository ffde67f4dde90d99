"""Starts, pauses and ends the attempts of a live run, as the world decides and processes report."""

from typing import NamedTuple

from wattkeeper.live.controller.accounting import Accounting
from wattkeeper.live.controller.attempt import (
    UNTRAINED,
    Answers,
    Changes,
    LiveAttempt,
    Notices,
    Standing,
)
from wattkeeper.live.controller.crash_loop import CrashLoopGuard
from wattkeeper.live.controller.events import Exited, ExternalEvent
from wattkeeper.live.controller.process_table import ProcessTable
from wattkeeper.live.controller.progress import ProgressReporter
from wattkeeper.live.controller.rehearsal import RecordedRuns
from wattkeeper.live.wire.messages import AttemptResult, EpochReport, Lost
from wattkeeper.policies.points.views import Measurement
from wattkeeper.sim.attempts.decided import Tuned
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import Callback


class AttemptEnding(NamedTuple):
    """The result of an attempt, which tables of the simulator do not hold."""

    job_id: str
    attempt: int
    outcome: AttemptResult


class AttemptLifecycle:
    """Carries out what the world decides on attempts, and tells its listener how they end.

    `runs` are the attempts whose end is not reported, or whose process has not exited.

    Attributes:
        endings: How attempts ended, in order.
    """

    def __init__(
        self,
        backend: Backend,
        runs: dict[tuple[str, int], LiveAttempt],
        processes: ProcessTable,
        accounting: Accounting,
        failures: CrashLoopGuard,
        recorded_runs: RecordedRuns,
        report_progress: ProgressReporter,
    ) -> None:
        self.endings: list[AttemptEnding] = []
        self._backend, self._runs, self._processes = backend, runs, processes
        self._accounting, self._failures = accounting, failures
        self._recorded_runs, self._report_progress = recorded_runs, report_progress
        self.changes: Changes = {AttemptResult: self._end, Lost: self._lose}
        self.answers: Answers = {AttemptResult: lambda *_: {}}
        self.notices: Notices = {Exited: self._note_exit, Lost: self._note_old_loss}

    # Called by the world, through the attempt.

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """Start its process once its GPUs are free; report an end that came while it waited."""
        run.resume()
        self._accounting.hold(run)
        if run.outcome is not None:
            env = self._processes.env
            env.schedule_at(env.now_s, Callback(self._report_end, run))
        elif not run.process.begun:
            self._launch(run, delay_s)

    def pause(self, run: LiveAttempt) -> None:
        """Tell its process to save its state and exit."""
        run.suspend()
        self._report_progress(run, "waits")
        if run.process.begun:
            run.process.stop_sent = True
            self._processes.stop(run)
        else:
            self._processes.recall(run)

    def stop(self, run: LiveAttempt) -> None:
        """End the attempt: once its process has reported its end, or now if it does not train."""
        if run.process.begun and run.standing is Standing.RUNNING:
            self._processes.stop(run)
            return
        if run.standing is Standing.PAUSED:
            run.resume()
        if not run.process.begun:
            self._processes.recall(run)
        self._finish(run, run.result_so_far("ended"))

    def limit(self, run: LiveAttempt) -> None:
        """Tell its process to train at its power limit."""
        if run.process.begun and run.standing is Standing.RUNNING:
            self._processes.limit(run)

    def _launch(self, run: LiveAttempt, delay_s: float = 0.0) -> None:
        self._processes.launch(run, delay_s)
        self._report_progress(run, "starts")

    # Events of its process.

    def _end(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        """Take the end that a session reported."""
        progress = EpochReport(outcome.epochs, run.last.metric, outcome.time_s, outcome.energy_j)
        self._accounting.account(run, progress)
        self._processes.expect_exit(run)
        if outcome.cause not in UNTRAINED:
            self._finish(run, outcome)
        elif run.attempt.is_stopped:
            self._finish(run, outcome._replace(cause="ended"))
        elif outcome.cause == "failed":
            self._failures.note_failure(run, outcome)
            if run.standing is Standing.PAUSED:  # it resumes from the state before
                run.detach_process()
            else:
                self._give_up(run, outcome)
        elif run.process.stop_sent or progress.epoch > run.saved.epoch:
            run.saved = progress
            run.detach_process()
            if run.standing is Standing.RUNNING:  # it resumes already, or stopped on its own
                self._accounting.hold(run)
                self._launch(run)
        else:
            self._give_up(run, outcome)

    def _lose(self, run: LiveAttempt, lost: Lost) -> None:
        """Take the loss of a process."""
        if lost.cause != "crashed":
            self._processes.kill(run.process.run_id)
        if run.outcome is not None:
            return
        if run.profile.reached:  # only slices of other batch sizes are lost
            self._finish(run, run.result_so_far("reached"))
        elif run.attempt.is_stopped:
            self._finish(run, run.result_so_far("ended"))
        elif run.standing is Standing.PAUSED:
            run.detach_process()
        else:
            outcome = run.result_so_far(lost.cause, self._describe_loss(lost))
            self._failures.note_loss(run, lost, outcome)
            self._give_up(run, outcome)

    def _describe_loss(self, lost: Lost) -> str:
        if lost.cause == "crashed":
            return "" if lost.code is None else f"exit code {lost.code}"
        what = (
            "it made no Session within" if lost.cause == "silent" else "its Session was silent for"
        )
        return f"{what} {self._processes.settings.lease_s:g} s (live.lease_s)"

    def _note_old_loss(self, run: LiveAttempt | None, lost: Lost, external: ExternalEvent) -> None:
        """Note the loss of a process whose attempt has ended, or that another one replaced."""
        if lost.cause != "crashed":  # it reported its end, but did not exit
            self._processes.kill(external.run)
        elif (lost.code or 0) <= 0:  # its script failed, and then was killed
            self._failures.forget_failure(external.run)

    def _note_exit(self, run: LiveAttempt | None, _: Exited, external: ExternalEvent) -> None:
        self._processes.release(external.run)
        self._failures.note_exit(run, external.run)
        if run is not None and run.standing is Standing.OVER:
            self._runs.pop(run.key, None)
        self._processes.interrupt_if_empty()

    # Ends.

    def _finish(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        """End an attempt, once it holds its GPUs."""
        run.outcome = outcome
        self._report_end(run)

    def _report_end(self, run: LiveAttempt) -> None:
        outcome = run.outcome
        if outcome is None or run.standing is not Standing.RUNNING:
            return
        self._conclude(run, outcome)
        without_target = run.training.target is None and run.training.command is not None
        done = without_target and outcome.cause in {"epochs", "left"}
        reached = done or outcome.cause == "reached"
        run.decision = tuned = self._at_one_limit(run, outcome)
        self._backend.listener.ended(run.attempt, tuned, run.totals(outcome, reached))

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
            report = run.normalise([Measurement(limits[-1], epoch_s, power_w)])
            tuned = self._backend.listener.measured(decision, report)
            assert isinstance(tuned, Tuned)
            return tuned
        return decision.at_present_limit()

    def _give_up(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        """End an attempt that the world repeats."""
        self._conclude(run, outcome)
        self._recorded_runs.note_loss(run)
        self._backend.listener.lost(run.attempt, run.decision, run.totals(outcome, False))

    def _conclude(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        run.conclude()
        self.endings.append(AttemptEnding(*run.key, outcome))
        self._report_progress(run, outcome.cause, outcome)
        if run.process.run_id not in self._processes:
            self._runs.pop(run.key, None)
