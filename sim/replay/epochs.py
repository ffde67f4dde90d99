"""What an epoch of a training takes with the knobs in force."""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.policies.pipeline.execution import PipelineIteration
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.planning.hull import SpeedPoint, points_up_to, up_to_point
from wattkeeper.policies.planning.pipelines import cap_menu, plan_point
from wattkeeper.policies.points.views import Knobs
from wattkeeper.policies.profile import Curve
from wattkeeper.sim.attempts.decided import Tuned
from wattkeeper.sim.attempts.pace import Pace


@mypyc_attr(acyclic=True)
class EpochTimes:
    """Time and energy of an epoch, as a profile has them by power limit, or by locked clock."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def epoch(self, tuned: Tuned) -> tuple[float, float]:
        """Time (s) and energy (J) of an epoch."""
        return self.curve.epoch(tuned.power_limit_w, tuned.clock_mhz)

    def after(self, tuned: Tuned, knobs: Knobs) -> Tuned:
        """The decision with other knobs; the same object: they change nothing."""
        limit_w, clock_mhz = knobs.power_limit_w, knobs.clock_mhz or 0
        if limit_w is None or (limit_w == tuned.power_limit_w and clock_mhz == tuned.clock_mhz):
            return tuned
        return tuned.at_limit(limit_w, clock_mhz)

    def points(self, chosen: Knobs) -> Sequence[SpeedPoint]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return points_up_to(self.curve, chosen.power_limit_w, chosen.clock_mhz or 0)

    def keep_pace(self, peers: Pace) -> bool:
        """Called with the pace of the slowest peer; returns whether epochs have it from now on."""
        return False

    def reserved_w(self, tuned: Tuned) -> float:
        """What a training counts with under a power cap at least, W."""
        return 0.0


class PipelineTimes(EpochTimes):
    """Iterations of a pipeline-parallel job, whose time and energy follow from its clocks.

    An epoch is an iteration. Clocks and peers that change hold at once, also within an iteration.
    """

    def __init__(self, curve: Curve, task: PipelineTask) -> None:
        super().__init__(curve)
        self.task = task
        self._slowdown = 1.0

    @override
    def epoch(self, tuned: Tuned) -> tuple[float, float]:
        """Time (s) and energy (J) of an iteration; GPUs wait for a peer at blocking power."""
        task, iteration = self.task, self._execute(tuned)
        least_s = self._slowdown * task.fastest.time_s
        if self._slowdown <= 1 or iteration.time_s >= least_s:
            return iteration.time_s, iteration.energy_j
        return least_s, iteration.held(least_s, task.waiting_w)

    def _execute(self, tuned: Tuned) -> PipelineIteration:
        """The iteration without a slower peer."""
        return self.task.execute(tuned.knobs.plan, tuned.knobs.clock_mhz)

    @override
    def after(self, tuned: Tuned, knobs: Knobs) -> Tuned:
        before = tuned.knobs
        if (knobs.plan, knobs.clock_mhz) == (before.plan, before.clock_mhz):
            return tuned
        return tuned.with_knobs(knobs)

    @override
    def points(self, chosen: Knobs) -> Sequence[SpeedPoint]:
        task, plan, clock_mhz = self.task, chosen.plan, chosen.clock_mhz
        if plan is None and clock_mhz is None:
            plan = task.fastest_plan
        most = plan_point(task, task.execute(plan, clock_mhz), clock_mhz or 0, plan or ())
        return up_to_point(cap_menu(task), most)

    @override
    def keep_pace(self, peers: Pace) -> bool:
        self._slowdown = peers.slowdown
        return True

    @override
    def reserved_w(self, tuned: Tuned) -> float:
        """That without a straggler, which may end."""
        return plan_point(self.task, self._execute(tuned)).power_w
