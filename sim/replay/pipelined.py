"""Attempts of pipeline-parallel jobs: a plan of clocks gives time and energy of an iteration."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.planning.hull import SpeedPoint, up_to_point
from wattkeeper.policies.planning.pipelines import cap_menu, plan_point
from wattkeeper.policies.points.views import NO_KNOBS, Knobs
from wattkeeper.sim.attempts.attempt import Attempt, Decision, Inheritance, Tuned, Untuned
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.replay.replayed import RecordedWorkload, ReplayRules
from wattkeeper.sim.replay.retuned import RetunedTraining


class PipelineTraining(RetunedTraining):
    """An attempt of a pipeline-parallel job, whose clocks may change while it trains.

    An epoch is an iteration. Clocks and stragglers that change hold at once, also within an
    iteration. A slow node of its own is one of them.

    Attributes:
        task: Its instructions.
        clocks: The knobs with its clocks; none: the highest ones.
        pace: Time (s) and energy (J) of an iteration.
    """

    def __init__(
        self,
        backend: Backend,
        rules: ReplayRules,
        attempt: Attempt,
        inheritance: Inheritance,
        decision: Decision,
        known: RecordedWorkload,
        task: PipelineTask,
    ) -> None:
        super().__init__(backend, rules, attempt, inheritance, decision, known)
        self.task = task
        self.clocks = decision.knobs if isinstance(decision, Tuned) else NO_KNOBS
        self.pace = self._execute()

    def _execute(self) -> tuple[float, float]:
        """Time (s) and energy (J) of an iteration; GPUs wait for a straggler at blocking power."""
        task = self.task
        iteration = task.execute(self.clocks.plan, self.clocks.clock_mhz)
        least_s = self.slowdown * task.fastest.time_s
        if self.slowdown <= 1 or iteration.time_s >= least_s:
            return iteration.time_s, iteration.energy_j
        return least_s, iteration.held(least_s, task.waiting_w)

    def epoch(self) -> tuple[float, float]:
        """See `RetunedTraining`."""
        return self.pace

    def train_to_end(
        self, tuned: Tuned, target: float, saved_epochs: float, first: tuple[float, float] | None
    ) -> None:
        """Train at the clocks that are now known."""
        if isinstance(self.decision, Untuned):
            self.clocks = tuned.knobs
            self.pace = self._execute()
        super().train_to_end(tuned, target, saved_epochs, first)

    def retune(self, knobs: Knobs) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        if (knobs.plan, knobs.clock_mhz) != (self.clocks.plan, self.clocks.clock_mhz):
            self.clocks = knobs
            self._change_pace()

    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        task, plan, clock_mhz = self.task, chosen.plan, chosen.clock_mhz
        if plan is None and clock_mhz is None:
            plan = task.fastest_plan
        most = plan_point(task, task.execute(plan, clock_mhz), clock_mhz or 0, plan or ())
        return up_to_point(cap_menu(task), most)

    @override
    def change_pace(self, peers: Pace, own: Pace) -> None:
        self._change_pace()

    def _train_on(self) -> None:
        """Train on; under a power cap it counts as without a straggler, which may end."""
        iteration = self.task.execute(self.clocks.plan, self.clocks.clock_mhz)
        self.attempt.reserved_w = plan_point(self.task, iteration).power_w
        super()._train_on()

    def _change_pace(self) -> None:
        """Count what is done at the old pace, and go on at the new one."""
        self._count()
        self.pace = self._execute()
        if self.tuned is not None:
            self._set_end()
            if self.trains:
                self._train_on()
