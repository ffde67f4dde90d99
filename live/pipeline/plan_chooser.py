"""Asks the `Tune` policy of a pipeline-parallel training for plans of clocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.pipeline.profile import ClockPlan
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS, Progress
from wattkeeper.policies.points.views import Knobs, Running, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import Point, PolicyConfig, find_config
from wattkeeper.sim.attempts.decided import AttemptTotals, Tuned
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.kernel.clock import ElapsedTime
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.journal import DecisionJournal
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.replay.backend import options_of
from wattkeeper.traces.pipelines import replayed_profile


class PlanDecision(NamedTuple):
    """A decision as the journal has it (`decisions.parquet` of simulated runs).

    Attributes:
        time_s: When, s since the start of the training.
        point: `configure` or `tune`.
        policy: The policy's kind.
        saw: What it was shown.
        chose: What it answered.
    """

    time_s: float
    point: Point
    policy: str
    saw: str
    chose: str


PIPELINE: Final = Capabilities(
    "a pipeline's session", (*START_MOMENTS, "straggler", "cap"), clocks=True
)
"""What the session of a pipeline offers to policies: a cluster without a cap never changes it."""


class PlanChooser(DecisionJournal):
    """The policies of one training, asked as in a simulation.

    An epoch is an iteration, and the batch size its number of microbatches.

    Args:
        job: Name of the training.
        gpu_type: Type of its GPUs.
        iterations: Its length.
        tune: Config of the policy.
        now_s: A clock, s; the training starts now.

    Attributes:
        decisions: All that was decided so far.
        knobs: What is in force.

    Raises:
        PolicyError: If a training on real devices cannot carry out the policy's decisions.
    """

    def __init__(
        self,
        job: str,
        gpu_type: str,
        iterations: int,
        tune: PolicyConfig,
        now_s: Callable[[], float],
    ) -> None:
        self.decisions: list[PlanDecision] = []
        self.knobs = Knobs()
        self._job, self._gpu_type, self._iterations = job, gpu_type, iterations
        self._tune, self._configure = tune, find_config("configure", "fixed")
        host = Host(PIPELINE, ElapsedTime(now_s, now_s()), Objective(1.0), NamedStreams(0), self)
        configure = host.engage(self._configure)
        self._host = host
        self._maker = DecisionMaker(configure, host.engage(tune), self)

    @override
    def note(
        self,
        now_s: float,
        point: Point,
        subject: int,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        policy = (self._configure if point == "configure" else self._tune).kind
        self.decisions.append(PlanDecision(now_s, point, policy, repr(saw), chose))

    def start(self, task: PipelineTask) -> ClockPlan:
        """Ask for the first plan.

        Raises:
            PolicyError: If the policy chose what is not allowed, or asks to profile power limits.
        """
        self._start, self._task = self._make_start(task), task
        self._host.submitted(self._start.job)
        decision = self._maker.decide(self._start)
        if not isinstance(decision, Tuned):
            raise PolicyError(
                f"the tune policy {self._tune.kind!r} profiles power limits, which a pipeline's "
                "session does not: choose one that plans clocks",
                "tune",
            )
        _check_run(decision.knobs)
        self.knobs, self._configuration = decision.knobs, decision.configuration
        self._decided = decision
        return self.plan()

    def change_pace(self, task: PipelineTask, slowdown: float, progress: Progress) -> ClockPlan:
        """Ask, if it wants to be asked, what changes with stages or replicas that became slower.

        Args:
            task: The instructions with the times that were measured last.
            slowdown: Least time of an iteration over that at the highest clocks.
            progress: What the training has done so far.

        Raises:
            PolicyError: If the policy chose what is not allowed.
        """
        self._start, self._task = self._make_start(task), task
        if "straggler" in self._tune.moments:
            running = Running(
                self._start, self._configuration, (), "straggler", progress, self.knobs, slowdown
            )
            knobs = self._maker.retune(running)
            if knobs is not None:
                _check_run(knobs)
                if knobs.plan is not None or knobs.clock_mhz is not None:
                    self.knobs = self.knobs._replace(plan=knobs.plan, clock_mhz=knobs.clock_mhz)
        return self.plan()

    def end(self, done: Progress) -> None:
        """Let the policies learn what the training came to, now that it is done."""
        totals = AttemptTotals(int(done.epochs), done.time_s, done.energy_j, reached=True)
        self._host.observe(self._decided.outcome(totals, done.energy_j))

    def plan(self) -> ClockPlan:
        """The plan in force; without one, the highest clock of each instruction."""
        plan, clock_mhz = self.knobs.plan, self.knobs.clock_mhz
        if plan is not None:
            return plan
        return self._task.fastest_plan if clock_mhz is None else self._task.plan_at(clock_mhz)

    def _make_start(self, task: PipelineTask) -> Start:
        gpus = sum(
            task.profile.stages[task.graph.operations[positions[0]] // 2].gpus
            for positions in task.graph.positions
        )
        profile = replayed_profile(self._job, self._gpu_type, gpus, task, self._iterations)
        job = Job(self._job, self._job, 1, self._job, gpus, 0.0)
        return Start(job, 1, options_of(profile), 0)


def _check_run(knobs: Knobs) -> None:
    """Refuse what a pipeline's session cannot carry out."""
    if knobs.run != "go" or knobs.wake_s != math.inf:
        raise PolicyError(
            f"a pipeline's session can neither pause, stop nor wake up for a policy; found {knobs}",
            "tune",
        )
