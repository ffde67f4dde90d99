"""Takes what trainings report while they run, and answers what they ask."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from wattkeeper.live.controller.accounting import Accounting
from wattkeeper.live.controller.attempt import Answers, Changes, LiveAttempt, Notices, Standing
from wattkeeper.live.controller.crash_loop import CrashLoopGuard
from wattkeeper.live.controller.events import ExternalEvent, Woken
from wattkeeper.live.controller.process_table import ProcessTable
from wattkeeper.live.controller.progress import ProgressReporter
from wattkeeper.live.wire.messages import Begun, EpochReport, ProfileReport, SleepUntil
from wattkeeper.policies.points.views import Measurement, Slice
from wattkeeper.sim.attempts.decided import Tuned, Untuned
from wattkeeper.sim.engine.backend import Backend

Reply = Mapping[str, Any]


class TrainingReports:
    """Tells the listener of a backend what trainings report, and sessions what it decides."""

    def __init__(
        self,
        backend: Backend,
        processes: ProcessTable,
        accounting: Accounting,
        failures: CrashLoopGuard,
        report_progress: ProgressReporter,
    ) -> None:
        self._backend, self._processes = backend, processes
        self._accounting, self._failures = accounting, failures
        self._report_progress = report_progress
        self._waiting = defaultdict[LiveAttempt, list[Any]](list)
        self.changes: Changes = {
            Begun: self._begin,
            EpochReport: self._note_epoch,
            ProfileReport: self._note_profile,
        }
        self.answers: Answers = {
            Begun: self._assign,
            EpochReport: self._answer_epoch,
            ProfileReport: self._answer_profile,
        }
        self.notices: Notices = {SleepUntil: self._sleep}

    def _continues(self, run: LiveAttempt) -> bool:
        return run.is_wanted and not self._processes.halting

    # Sessions.

    def _begin(self, run: LiveAttempt, _: Begun) -> None:
        run.process.begin()
        self._failures.note_session(run)
        if run.standing is Standing.RUNNING:
            self._accounting.begin(run)
            self._report_progress(run, "trains")
            self._note_training(run)

    def _note_training(self, run: LiveAttempt) -> None:
        if isinstance(run.decision, Tuned):
            self._backend.listener.trains(run.attempt)

    def _assign(self, run: LiveAttempt, _: Begun, _ticket: object) -> Reply:
        assignment = run.assignment(self._processes.settings, self._backend.listener)
        return {"assignment": assignment._asdict()}

    # Epochs.

    def _note_epoch(self, run: LiveAttempt, report: EpochReport) -> None:
        self._accounting.account(run, report)
        run.process.epoch = report.epoch
        self._failures.note_epoch(run)
        if run.standing is Standing.RUNNING:
            self._report_progress(run, "trains")
        # Nothing is asked if its end follows, or its limit was chosen in this epoch.
        is_whole = not report.is_last and report.epoch != run.profile.epoch
        if self._backend.listener.wants_epochs and run.is_training and is_whole:
            self._backend.listener.epoch_ended(run.attempt)
        run.process.replies.setdefault(report.epoch, self._continues(run))

    def _answer_epoch(self, run: LiveAttempt, report: EpochReport, _: object) -> Reply:
        continues = run.process.replies.setdefault(report.epoch, self._continues(run))
        return {"goes_on": continues, "power_limit_w": run.power_limit_w}

    # Measurements.

    def _note_profile(self, run: LiveAttempt, reported: ProfileReport) -> None:
        decision, profile = run.decision, run.profile
        report = run.normalise(reported.measurements)
        profile.reports += 1
        if run.slice is not None or reported.reached:
            spent = run.last._replace(time_s=reported.time_s, energy_j=reported.energy_j)
            self._accounting.account(run, spent)
        for measured in report:
            if measured.batch_size:
                spent_s, spent_j = measured.spent_s, measured.spent_j
                profile.slices = profile.slices.add(spent_s, spent_j, profile.reached)
        if reported.reached:
            profile.reached = True
            profile.probe = self._ask_for_slice(run, report)
            return
        if isinstance(decision, Untuned):
            run.decision = self._backend.listener.measured(decision, report)
            if isinstance(run.decision, Tuned):
                fastest = max(decision.measured + report)
                profile.fastest_s = fastest.time_per_epoch_s * run.scale
                profile.epoch = run.process.epoch + 1
                if run.standing is Standing.RUNNING:
                    self._note_training(run)
        for ticket in self._waiting.pop(run, []):
            self._processes.reply(ticket, {"power_limit_w": run.power_limit_w})

    def _ask_for_slice(self, run: LiveAttempt, report: tuple[Measurement, ...]) -> Slice | None:
        """Ask for a slice of another batch size, which a power cap may forbid."""
        if run.attempt.is_stopped:
            return None
        piece = self._backend.listener.reached(run.attempt, report)
        if piece is None or piece.batch_size is None:
            return None
        profile, gpus = run.training.profile, run.training.options.gpus
        power_w = piece.power_limit_w * gpus
        if profile is not None:
            epoch_s, epoch_j = profile.curves[piece.batch_size].epoch(piece.power_limit_w)
            power_w = epoch_j / epoch_s
        return piece if self._backend.listener.allows(run.attempt, power_w) else None

    def _answer_profile(self, run: LiveAttempt, _: ProfileReport, ticket: object) -> Reply | None:
        piece = run.slice
        if piece is not None or run.profile.reached:
            return {"slice": piece}
        if run.power_limit_w is not None:
            return {"power_limit_w": run.power_limit_w}
        self._waiting[run].append(ticket)  # another process of the training measures
        return None

    # Sleeps.

    def _sleep(self, run: LiveAttempt | None, sleep: SleepUntil, external: ExternalEvent) -> None:
        """Let a process sleep, unless it shall stop or does not know its power limit."""
        known_w, until_s = sleep.power_limit_w, sleep.until_s
        if run is not None:
            knows_other = known_w is not None and run.power_limit_w not in (None, known_w)
            if knows_other or not run.is_wanted:
                until_s = self._processes.env.now_s
        woken = partial(self._wake, run, external)
        self._processes.virtual_time.sleep(external.run, until_s, woken)

    def _wake(self, run: LiveAttempt | None, external: ExternalEvent) -> None:
        """Reply to a process at the end of its sleep."""
        if run is None or run.process.run_id != external.run:
            self._processes.reply(external.ticket, {"goes_on": False})
            return
        if self._backend.listener.retunes:
            env = self._processes.env
            env.log.add(external._replace(time_s=env.now_s, event=Woken()))
        goes_on = self._continues(run) and not run.process.stop_sent
        reply = {"goes_on": goes_on, "power_limit_w": run.power_limit_w}
        self._processes.reply(external.ticket, reply)
