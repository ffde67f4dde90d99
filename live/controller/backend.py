"""The backend of live runs: trainings are processes, and what becomes of them is what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from wattkeeper.live.controller.crash_loop import CrashLoopGuard
from wattkeeper.live.controller.environment import LiveEnvironment
from wattkeeper.live.controller.event_log import ExternalEvent
from wattkeeper.live.controller.launchers.local import file_name
from wattkeeper.live.controller.process_table import LiveSettings, ProcessTable
from wattkeeper.live.controller.progress import Watch, seen
from wattkeeper.live.controller.virtual_time import VirtualTime
from wattkeeper.live.controller.workloads import NOTHING, LiveAttempt, Trainings, TrainingSpec, pick
from wattkeeper.live.wire.messages import AttemptResult, EpochReport
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import Job, Options
from wattkeeper.policies.protocols import Start as Started
from wattkeeper.sim.attempts.attempt import (
    Attempt,
    Decision,
    Execution,
    Inheritance,
    Tuned,
    Untuned,
)
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.engine.environment import Callback
from wattkeeper.sim.engine.replay import RecordedRun, modelled_w
from wattkeeper.sim.engine.rng import RandomStreams


class AttemptEnding(NamedTuple):
    """How an attempt ended: what the simulator's tables have no column for."""

    job_id: str
    attempt: int
    outcome: AttemptResult


class LiveBackend(Backend):
    """Starts processes, hears what they say, and tells the world (`wattkeeper.sim.engine.backend`).

    An attempt begins when its process says so; until then it holds its GPUs idle. One that crashed,
    failed, hung or never said anything is lost: the world has it tried again. A GPU is given to
    another process only once the one that had it is gone.

    Args:
        env: The environment of the run.
        trainings: How each workload is trained.
        cluster: Where.
        streams: Picks what a rehearsal repeats.
        setting: What holds for the run.
        watch: Is told what each attempt does, once the log was played again.
    """

    def __init__(
        self,
        env: LiveEnvironment,
        trainings: Trainings,
        cluster: ClusterSpec,
        streams: RandomStreams,
        setting: LiveSettings,
        watch: Watch = lambda _: None,
    ) -> None:
        self.env = env
        self._watch = watch
        self.endings: list[AttemptEnding] = []
        self._trainings, self._cluster = trainings, cluster
        self._streams, self._setting = streams, setting
        self._runs: dict[tuple[str, int], LiveAttempt] = {}
        self._needed: dict[str, float] = {}
        self._lost_before = Counter[str]()
        self._failures = CrashLoopGuard(setting.folder / "output")
        self._active = self._halting = False
        self._asking: dict[tuple[str, int], list[Any]] = {}
        self._standstill = VirtualTime(env, lambda ticket: self._reply(ticket, {}))
        self.fleet = ProcessTable(cluster, setting, env.wall, self._standstill)
        env.known, env.answer, env.tell = self._known, self._answer, self._tell
        env.outside, env.caught_up = self._outside, self._caught_up

    # What the world asks for.

    def _training(self, job: Job, gpu_type: str) -> TrainingSpec:
        return self._trainings[str(job.workload), job.gpus, gpu_type]

    def options(self, job: Job, gpu_type: str) -> Options:
        """What the workload's training may be given."""
        return self._training(job, gpu_type).options

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        """The largest mean power of the profile; without one, the largest limit."""
        if job.workload is None:
            return modelled_w(self._cluster.busy_w, job, gpu_type)
        training = self._training(job, gpu_type)
        if training.profile is None:
            return training.options.max_power_w * job.gpus
        return training.profile.most_power_w

    def foresight(self, start: Started) -> Profile:
        """Nothing knows the future of a live run."""
        raise PolicyError(
            f"{start.job.job_id}: a live run has no foresight; choose a policy that learns",
            "configure",
        )

    def run(self, attempt: Attempt, inheritance: Inheritance) -> Execution:
        """Let time pass."""
        power_w = modelled_w(self._cluster.busy_w, attempt.job, attempt.gpu_type)
        return RecordedRun(self, self.env, attempt, inheritance, power_w)

    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        """Train in a process."""
        job = attempt.job
        training = self._training(job, attempt.gpu_type)
        run = LiveAttempt(attempt, decision, inheritance, training, self)
        self._choose_luck(run)
        self._runs[job.job_id, attempt.number] = run
        return run

    def go_on(self, run: LiveAttempt, delay_s: float) -> None:
        """Start its process once its GPUs are free; report an end that came while it waited."""
        run.paused = False
        self._hold(run)
        if run.outcome is not None:
            self.env.schedule_at(self.env.now, Callback(self._finish, run))
        elif not run.begun:
            self._launch(run, delay_s)

    def pause(self, run: LiveAttempt) -> None:
        """Have its process stop, after it saved its state."""
        run.paused = True
        self._show(run, "waits")
        if run.begun:
            run.told = True
            if run.id is not None:
                self.fleet.stop(run.id)
            return
        if run.due is not None:
            run.due.cancel()
            run.due = None
            run.query_s = min(run.query_s, run.starts_s - self.env.now)
        self.fleet.recall(run)

    @property
    def unfinished(self) -> bool:
        """Whether an attempt has not ended."""
        return any(not run.over for run in self._runs.values())

    # What happens outside.

    def post(self, run: str, kind: str, payload: Mapping[str, Any], ticket: Any) -> None:
        """Take what a session said, or what is said of it; any thread may call it."""
        job_id, attempt = self.fleet.attempt_of(run)
        now_s = self.env.wall.now_s()
        self.env.post(ExternalEvent(now_s, job_id, attempt, run, kind, payload, ticket))

    def halt(self) -> None:
        """Have all trainings save their state, then interrupt the run; a signal handler may."""
        if self.fleet.hands is not None:
            self.fleet.hands.server.later(lambda: self.post("", "halt", {}, None))

    def exited(self, run: str, code: int | None) -> None:
        """Take that a process is gone; any thread may call it."""
        self.post(run, "lost", {"cause": "crashed", "code": code}, None)
        self.post(run, "exited", {}, None)

    def _outside(self) -> bool:
        if self.fleet.hands is None:
            return False
        return bool(self.fleet) or any(not (run.over or run.paused) for run in self._runs.values())

    def _known(self, news: ExternalEvent) -> bool:
        if news.kind == "halt":
            return self._halting
        run = self._runs.get((news.job_id, news.attempt))
        payload = news.payload
        if run is None or run.id != news.run or run.over or payload.get("rank"):
            return True
        if news.kind == "begun":
            return run.begun
        if news.kind == "profiled":
            return isinstance(run.decision, Tuned)
        if news.kind == "epoch":
            return bool(payload["epoch"] <= run.heard)
        return news.kind not in {"ended", "lost"}

    def _tell(self, news: ExternalEvent) -> None:
        """Let the world know of news, and answer."""
        if news.kind == "halt":
            self._halt()
            return
        run = self._runs[news.job_id, news.attempt]
        run.id = news.run
        if news.kind == "begun":
            run.begun = True
            self._failures.began(str(run.attempt.job.workload))
            if not run.paused:
                run.since_s = self.env.now
                run.attempt.train(run.since_s)
                self._show(run, "trains")
        elif news.kind == "profiled":
            self._profiled(run, news.payload["measurements"])
        elif news.kind == "epoch":
            self._account(run, EpochReport(**_of(EpochReport, news.payload)))
            run.heard = run.last.epoch
            self._failures.reported(str(run.attempt.job.workload))
            if not run.paused:
                self._show(run, "trains")
            run.answers.setdefault(run.heard, self._goes_on(run))
        elif news.kind == "ended":
            self._ended(run, AttemptResult(**_of(AttemptResult, news.payload)))
        else:
            self._lost(run, news.payload)
        if news.ticket is not None:
            self._answer(news)

    def _answer(self, news: ExternalEvent) -> None:
        run = self._runs.get((news.job_id, news.attempt))
        if news.kind == "broken":
            raise RuntimeError(f"the link broke: {news.payload['error']}")
        if news.kind == "exited":
            self.fleet.exited(news.run)
            self._failures.gone(run, news.run, refuse=self._active)
            self._clear(news)
            self._interrupt_if_empty()
        elif news.kind == "lost":
            if news.payload["cause"] != "crashed":  # it said that it was over, but did not end
                self.fleet.kill(news.run)
            elif (news.payload["code"] or 0) <= 0:  # its script failed, but did not end of that
                self._failures.killed(news.run)
        elif news.kind == "sleep":
            until_s = self.env.now if run and run.paused else float(news.payload["until_s"])
            self._standstill.sleep(news.run, until_s, news.ticket)
        elif run is None or (run.id != news.run):
            self._reply(news.ticket, {"gone": True})
        elif news.kind == "begun":
            where = self._setting.folder / "checkpoints" / f"{file_name(run.name)}.state"
            assignment = run.assignment(
                self._setting.objective.eta, str(where), self._setting.lease_s
            )
            self._reply(news.ticket, {"assignment": assignment._asdict()})
        elif news.kind == "profiled":
            if run.power_limit_w is None:  # another process of the training reports it
                self._asking.setdefault((news.job_id, news.attempt), []).append(news.ticket)
            else:
                self._reply(news.ticket, {"limit_w": run.power_limit_w})
        elif news.kind == "epoch":
            goes_on = run.answers.setdefault(int(news.payload["epoch"]), self._goes_on(run))
            self._reply(news.ticket, {"goes_on": goes_on})
        else:
            self._reply(news.ticket, {})

    def _reply(self, ticket: Any, reply: dict[str, Any]) -> None:
        if self.fleet.hands is not None:
            self.fleet.hands.server.answer(ticket, {**reply, "now_s": self.env.now})

    # What becomes of an attempt.

    def _profiled(self, run: LiveAttempt, found: list[list[float]]) -> None:
        attempt, decision = run.attempt, run.decision
        if isinstance(decision, Untuned):
            run.decision = self.listener.measured(decision, run.measured(found))
        for ticket in self._asking.pop((attempt.job.job_id, attempt.number), []):
            self._reply(ticket, {"limit_w": run.power_limit_w})

    def _account(self, run: LiveAttempt, now: EpochReport) -> None:
        """Let the world know of what was drawn since it was last told."""
        if not run.heard and now.time_s < run.kept.time_s:
            self._starts_over(run)
        before, now_s = run.last, self.env.now
        run.last = now
        if run.paused:
            return
        spent_j = (now.energy_j or 0.0) - (before.energy_j or 0.0)
        if spent_j > 0 and now_s > run.since_s:
            power_w, settled = spent_j / (now_s - run.since_s), isinstance(run.decision, Tuned)
            self.listener.draws(run.attempt, power_w, run.since_s, settled)
            run.since_s = now_s

    def _starts_over(self, run: LiveAttempt) -> None:
        """What it did before it was stopped was not saved: that was for nothing."""
        run.attempt.add_overhead(run.kept.time_s, run.kept.energy_j or 0.0)
        run.last = run.kept = NOTHING

    def _goes_on(self, run: LiveAttempt) -> bool:
        return not (run.paused or self._halting)

    def _ended(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        came_to = EpochReport(outcome.epochs, None, outcome.time_s, outcome.energy_j)
        self._account(run, came_to)
        self.fleet.over(run.id)
        if outcome.cause == "stopped" and (run.told or came_to.epoch > run.kept.epoch):
            run.kept = came_to
            run.leave()
            if not run.paused:  # it goes on already, or nobody had asked it to stop
                self._hold(run)
                self._launch(run)
        elif outcome.cause in {"failed", "stopped"}:
            if outcome.cause == "failed":
                assert run.id is not None
                self._failures.note(run.id, outcome)
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
        """The decision; limits that no epoch profiled were not changed, and one was measured."""
        decision = run.decision
        if isinstance(decision, Tuned):
            return decision
        limits = run.training.options.limits(decision.batch_size)
        if decision.profile_w == limits[-1:] and outcome.epochs and outcome.energy_j is not None:
            epoch_s, power_w = outcome.time_s / outcome.epochs, outcome.energy_j / outcome.time_s
            report = run.measured([[limits[-1], epoch_s, power_w]])
            return self.listener.measured(decision, report)
        return decision.at_highest_limit()

    def _lost(self, run: LiveAttempt, payload: Mapping[str, Any]) -> None:
        assert run.id is not None
        if payload["cause"] != "crashed":
            self.fleet.kill(run.id)
        if run.outcome is not None:
            return
        if run.paused:
            run.leave()
            return
        last, cause, code = run.last, payload["cause"], payload.get("code")
        if not run.begun and code is not None and code >= 0:  # else somebody killed it
            workload = str(run.attempt.job.workload)
            self._failures.ended_quickly(workload, run.id, code, refuse=self._active)
        message = "" if code is None else f"exit code {code}"
        if cause != "crashed":
            what = (
                "it made no Session within" if cause == "silent" else "its Session was silent for"
            )
            message = f"{what} {self._setting.lease_s:g} s (live.lease_s)"
        outcome = AttemptResult(cause, last.epoch, last.time_s, last.energy_j, message=message)
        if cause != "crashed" or (run.begun and code is not None and code > 0):
            self._failures.note(run.id, outcome)
        self._give_up(run, outcome)

    def _give_up(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        run.over = True
        attempt = run.attempt
        self._forget(run, outcome)
        self._needed[attempt.job.job_id] = run.needed
        self._lost_before[attempt.job.job_id] += 1
        self.listener.lost(attempt, run.decision, run.totals(outcome, False))

    def _forget(self, run: LiveAttempt, outcome: AttemptResult) -> None:
        attempt = run.attempt
        self.endings.append(AttemptEnding(attempt.job.job_id, attempt.number, outcome))
        self._show(run, outcome)
        if run.id not in self.fleet:
            self._runs.pop((attempt.job.job_id, attempt.number), None)

    def _choose_luck(self, run: LiveAttempt) -> None:
        """A rehearsal that is tried again has the luck of the one that was lost.

        Those after it have the luck that they would have had without that one.
        """
        job_id = run.attempt.job.job_id
        lost = self._needed.pop(job_id, None)
        if lost is None:
            pick(run, run.attempt.number - self._lost_before[job_id], self._streams)
        else:
            run.needed = lost

    def _hold(self, run: LiveAttempt) -> None:
        run.since_s = self.env.now
        self.listener.holds(run.attempt)

    # Processes.

    def _halt(self) -> None:
        for run in self._runs.values():
            run.told |= run.begun
        if not self._active:  # the run was halted, and goes on later in its log
            return
        self._halting, self.fleet.starts = True, False
        for run in self._runs.values():
            if not run.begun:
                self.fleet.recall(run)
            elif run.id is not None and not run.over:
                self.fleet.stop(run.id)
        self._interrupt_if_empty()

    def _interrupt_if_empty(self) -> None:
        if self._halting and not self.fleet:
            raise KeyboardInterrupt

    def _launch(self, run: LiveAttempt, delay_s: float = 0.0) -> None:
        """Start its process; a rehearsal's after a delay, which another training takes itself.

        So it is with the time that the choice of the parent takes.
        """
        delay_s += run.query_s
        if delay_s and run.training.command is None:
            run.due = Callback(self._launch_late, run)
            run.starts_s = self.env.now + delay_s
            self.env.schedule_at(run.starts_s, run.due)
        else:
            self.fleet.launch(run)
        self._show(run, "starts")

    def _show(
        self, run: LiveAttempt, state: Literal["starts", "trains", "waits"] | AttemptResult
    ) -> None:
        if self._active:
            self._watch(seen(run, state, self.fleet.shown(run.id)))

    def _launch_late(self, run: LiveAttempt) -> None:
        run.due, run.query_s = None, 0.0
        self.fleet.launch(run)

    def _clear(self, news: ExternalEvent) -> None:
        """Forget an attempt that was over but for its process."""
        key = news.job_id, news.attempt
        if key in self._runs and self._runs[key].over:
            del self._runs[key]

    def _caught_up(self) -> None:
        """The log was played again: find what still runs, and start what does not."""
        for key in [key for key, run in self._runs.items() if run.over]:
            del self._runs[key]
        self._active = self.fleet.starts = True
        if self.fleet.hands is None:
            return
        self._standstill.stop()
        for run in self.fleet.take_over(self._runs.values()):
            assert run.id is not None
            self.exited(run.id, None)
        for run in list(self._runs.values()):
            if not (run.id or run.due or run.outcome or run.paused):
                self.fleet.launch(run)
        self.fleet.hands.server.listen()
        for run in self._runs.values():
            self._show(run, "waits" if run.paused else "trains" if run.begun else "starts")


def _of(kind: Callable[..., Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return {name: payload[name] for name in names if name in payload}
