"""A power cap: one that changes is obeyed, and retries wait until it allows them to begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.planning.sharing import cheapest, share_out
from wattkeeper.policies.points.views import NO_KNOBS, Knobs
from wattkeeper.sim.attempts.attempt import Attempt, Execution, LostWork
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.checkpoints import CheckpointRule
from wattkeeper.sim.cluster.cluster_spec import CapSignal
from wattkeeper.sim.engine.feasibility import Feasibility
from wattkeeper.sim.engine.node_states import SLACK_W, PowerBudget
from wattkeeper.sim.engine.retuner import Retuner


class PowerCap:
    """Keeps running jobs below a cap that follows a signal.

    Jobs that do not train, since they wait, are restored or profiled, keep what they reserved.

    Args:
        rules: How the cap is obeyed.
        budget: What jobs may draw.
        running: Running attempts by number of the job, last started last.
        retuner: Knows what `Tune` chose; None: no limit changes.
        preempt: Preempts an attempt.
        note: Notes the pace that it sets for an attempt, and what that may draw then, W.
    """

    def __init__(
        self,
        rules: CapSignal,
        budget: PowerBudget,
        running: Mapping[int, Execution],
        retuner: Retuner | None,
        preempt: Callable[[Execution], None],
        note: Callable[[Execution, Knobs, float], None],
    ) -> None:
        self._rules = rules
        self._budget = budget
        self._running = running
        self._retuner = retuner
        self._preempt = preempt
        self._note = note

    def change(self, cap_w: float) -> None:
        """Obey another cap, W, from now on."""
        self._budget.set_cap(cap_w)
        if self._rules.obey == "limits":
            self.share()
        else:
            self._preempt_above(self._budget.spare_w, {})
        if self._retuner is not None and self._retuner.wants("cap"):
            menus = self._menus(limited=False)
            for number, point in self._points(menus).items():
                self._retuner.set_share(number, point.power_w)
            self._retuner.ask_all("cap")

    def share(self) -> None:
        """Share the cap out among running jobs, up to what `Tune` chose for each."""
        menus = self._menus(limited=True)
        saved_w = sum(
            self._budget.total_w(number) - cheapest(menu).power_w for number, menu in menus.items()
        )
        self._preempt_above(self._budget.spare_w + saved_w, menus)
        menus = {number: menu for number, menu in menus.items() if number in self._running}
        points = self._points(menus)
        for number in sorted(points, key=lambda n: points[n].power_w - self._budget.total_w(n)):
            self._set(number, points[number])

    def _preempt_above(self, spare_w: float, menus: Mapping[int, list[SpeedPoint]]) -> None:
        """Preempt jobs, last started first, until at least 0 W are spare."""
        for number, execution in reversed(list(self._running.items())):
            if spare_w >= -SLACK_W:
                return
            more_w = self._budget.more_w(number)
            if more_w > 0:
                spare_w += more_w
                if number in menus:  # a part of it counts as spare already
                    least_w = cheapest(menus[number]).power_w
                    spare_w -= self._budget.total_w(number) - least_w
                self._preempt(execution)

    def _menus(self, limited: bool) -> dict[int, list[SpeedPoint]]:
        """The points of jobs whose limits can change now, by their numbers."""
        menus = {}
        for number, execution in self._running.items():
            if execution.is_training and self._budget.counts(number):
                chosen = self._chosen(number) if limited else NO_KNOBS
                points = execution.points(chosen) or execution.points()[:1]
                if points:
                    menus[number] = list(points)
        return menus

    def _points(self, menus: Mapping[int, list[SpeedPoint]]) -> dict[int, SpeedPoint]:
        room_w = self._budget.spare_w + sum(map(self._budget.total_w, menus))
        if sum(menu[-1].power_w for menu in menus.values()) <= room_w:
            return {number: menu[-1] for number, menu in menus.items()}
        weights = [self._running[number].attempt.job.gpus_held for number in menus]
        points = share_out(list(menus.values()), weights, room_w, self._rules.share)
        return dict(zip(menus, points, strict=True))

    def _chosen(self, number: int) -> Knobs:
        """The pace that `Tune` chose."""
        return NO_KNOBS if self._retuner is None else self._retuner.chosen(number)

    def _set(self, number: int, point: SpeedPoint) -> None:
        """Set the pace of a job, unless it is in force."""
        assert self._retuner is not None
        execution = self._running[number]
        if execution.points(self._retuner.in_force(number))[-1] != point:
            pace = pace_at(point)
            self._note(execution, pace, point.power_w)
            self._retuner.set_pace(number, pace)
            execution.retune(pace)


def pace_at(point: SpeedPoint) -> Knobs:
    """The knobs of a point."""
    if point.plan or point.clock_mhz:
        clock_mhz, plan = point.clock_mhz or None, point.plan or None
        return Knobs(point.power_limit_w, clock_mhz=clock_mhz, plan=plan)
    return Knobs(point.power_limit_w)


class Retries:
    """Failed jobs that are tried again on the GPUs that they hold, first come first.

    Args:
        budget: The free power.
        room: The cache of what fits, which reserved power invalidates.
        begin: Asks the policies about an attempt, and begins it after a delay (s).

    Attributes:
        stalled: Attempts that wait for power, by the number of the job.
    """

    def __init__(
        self, budget: PowerBudget, room: Feasibility, begin: Callable[[Attempt, float], None]
    ) -> None:
        self._budget = budget
        self._room = room
        self.begin = begin
        self.stalled: dict[int, Attempt] = {}

    def add(self, attempt: Attempt) -> Execution:
        """Let an attempt wait for power on its GPUs."""
        attempt.hold(attempt.begun_s)
        self.stalled[attempt.job.number] = attempt
        return StalledRetry(attempt, self)

    def remove(self, attempt: Attempt) -> None:
        """Let an attempt, which was preempted, not wait any more."""
        self.stalled.pop(attempt.job.number, None)

    def go_on(self) -> None:
        """Begin those whose power is allowed now."""
        for number, attempt in list(self.stalled.items()):
            if self._budget.allows(attempt.job, attempt.gpu_type):
                del self.stalled[number]
                self._budget.reserve(attempt.job, attempt.gpu_type)
                self._room.shrink()
                self.begin(attempt, 0.0)


class StalledRetry(Execution):
    """An attempt that waits for power; its policies were not asked yet."""

    def __init__(self, attempt: Attempt, retries: Retries) -> None:
        super().__init__(attempt)
        self._retries = retries

    def go_on(self, delay_s: float) -> None:
        """Begin: its power was allowed when it got GPUs again."""
        self._retries.begin(self.attempt, delay_s)

    def pause(self) -> None:
        """Wait for GPUs, as other preempted jobs do."""
        self._retries.remove(self.attempt)

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """There is nothing to save."""

    def change_pace(self, peers: Pace, own: Pace) -> None:
        """It has no pace before it begins."""

    def lose(self) -> LostWork:
        """Wait for GPUs; nothing is lost."""
        self.pause()
        return LostWork(0.0, 0.0, 0.0, 0.0)
