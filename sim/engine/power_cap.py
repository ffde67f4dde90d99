"""A power cap that changes, and is obeyed by lower power limits or by preemption."""

from __future__ import annotations

from collections.abc import Mapping

from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.planning.sharing import cheapest, share_out
from wattkeeper.policies.points.views import NO_KNOBS
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.cluster.cluster_spec import CapSignal
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.lifecycle import Lifecycle
from wattkeeper.sim.engine.node_states import SLACK_W
from wattkeeper.sim.engine.power_limits import PowerLimits, pace_at
from wattkeeper.sim.engine.retuner import Retuner
from wattkeeper.sim.engine.signal_changes import SignalChanges
from wattkeeper.sim.engine.subscriber import Subscriber


class PowerCap(Subscriber):
    """Keeps running jobs below a cap that follows a signal.

    Jobs that do not train, since they wait, are restored or profiled, keep what they reserved.

    Args:
        core: What the parts of the world share.
        rules: How the cap is obeyed.
        signal: When it changes, and its value.
        retuner: Knows what `Tune` chose.
        limits: Notes the paces that the cap sets.
        lifecycle: Preempts.
    """

    def __init__(
        self,
        core: Core,
        rules: CapSignal,
        signal: SignalChanges,
        retuner: Retuner,
        limits: PowerLimits,
        lifecycle: Lifecycle,
    ) -> None:
        self._rules = rules
        self._signal = signal
        self._loop = core.loop
        self._budget = core.budget
        self._room = core.room
        self._board = core.board
        self._retuner = retuner
        self._limits = limits
        self._lifecycle = lifecycle
        core.recorder.journal.add_maker("cap", rules.obey)
        self._maker = core.recorder.journal.maker_of("cap")
        self._shares = rules.obey == "limits"
        self._is_unshared = False
        core.budget.set_cap(signal.value)

    def begin_run(self) -> None:
        """Follow the signal."""
        self._signal.follow(self._change)

    def _change(self) -> None:
        self._obey(self._signal.value)
        self._room.shrink()
        self._room.grow()
        self._board.ask_for_pass()

    def _obey(self, cap_w: float) -> None:
        """Obey another cap, W, from now on."""
        self._budget.set_cap(cap_w)
        if self._shares:
            self._share()
        else:
            self._preempt_above(self._budget.spare_w, {})
        if self._retuner.wants("cap"):
            menus = self._menus(limited=False)
            for number, point in self._points(menus).items():
                self._retuner.set_share(number, point.power_w)
            self._retuner.ask_all("cap")

    def draw(self, attempt: Attempt, power_w: float, settled: bool) -> None:
        """Share the cap out anew at the end of this time, if a job's limit is chosen."""
        if settled and self._shares:
            self._is_unshared = True
            self._loop.pass_is_due = True

    def release(self, attempt: Attempt) -> None:
        """Share the cap out anew at the end of this time."""
        if self._shares:
            self._is_unshared = True
            self._loop.pass_is_due = True

    def share_power(self) -> None:
        """Share the cap out, if that is due."""
        if self._is_unshared:
            self._share()
            self._is_unshared = False

    def _share(self) -> None:
        """Share the cap out among running jobs, up to what `Tune` chose for each."""
        menus = self._menus(limited=True)
        saved_w = sum(
            self._budget.total_w(number) - cheapest(menu).power_w for number, menu in menus.items()
        )
        self._preempt_above(self._budget.spare_w + saved_w, menus)
        menus = {number: menu for number, menu in menus.items() if number in self._board.running}
        points = self._points(menus)
        for number in sorted(points, key=lambda n: points[n].power_w - self._budget.total_w(n)):
            self._set(number, points[number])

    def _preempt_above(self, spare_w: float, menus: Mapping[int, list[SpeedPoint]]) -> None:
        """Preempt jobs, last started first, until at least 0 W are spare."""
        for number, execution in reversed(list(self._board.running.items())):
            if spare_w >= -SLACK_W:
                return
            more_w = self._budget.more_w(number)
            if more_w > 0:
                spare_w += more_w
                if number in menus:  # a part of it counts as spare already
                    least_w = cheapest(menus[number]).power_w
                    spare_w -= self._budget.total_w(number) - least_w
                self._lifecycle.evict(execution, self._maker)

    def _menus(self, limited: bool) -> dict[int, list[SpeedPoint]]:
        """The points of jobs whose limits can change now, by their numbers."""
        menus = {}
        for number, execution in self._board.running.items():
            if execution.is_training and self._budget.counts(number):
                chosen = self._retuner.chosen(number) if limited else NO_KNOBS
                points = execution.points(chosen) or execution.points()[:1]
                if points:
                    menus[number] = list(points)
        return menus

    def _points(self, menus: Mapping[int, list[SpeedPoint]]) -> dict[int, SpeedPoint]:
        room_w = self._budget.spare_w + sum(map(self._budget.total_w, menus))
        if sum(menu[-1].power_w for menu in menus.values()) <= room_w:
            return {number: menu[-1] for number, menu in menus.items()}
        weights = [self._board.running[number].attempt.job.gpus_held for number in menus]
        points = share_out(list(menus.values()), weights, room_w, self._rules.share)
        return dict(zip(menus, points, strict=True))

    def _set(self, number: int, point: SpeedPoint) -> None:
        """Set the pace of a job, unless it is in force."""
        execution = self._board.running[number]
        if execution.points(self._retuner.in_force(number))[-1] != point:
            pace = pace_at(point)
            self._limits.note(execution, self._retuner.chosen(number), pace, point.power_w)
            self._retuner.set_pace(number, pace)
            execution.retune(pace)
