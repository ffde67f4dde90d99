"""Decides for all ranks of a pipeline: profiling, plans, stages that became slower."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.pipeline.clock_sweep import ClockSweep, write_profile
from wattkeeper.live.pipeline.plan_chooser import PlanChooser
from wattkeeper.live.pipeline.reports import (
    IterationRow,
    Order,
    RankReport,
    RankTotals,
    ReplicaPace,
)
from wattkeeper.live.pipeline.slow_stages import TOLERANCE, SlowStages, scale_profile
from wattkeeper.policies.pipeline.graph import PipelineGraph, schedule_graph
from wattkeeper.policies.pipeline.profile import ClockPlan, PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.points.moments import Progress
from wattkeeper.traces.files.atomic import replace_file

PROFILE: Final = "profile.csv"
RESULTS: Final = "pipeline.json"


class PipelineResults(NamedTuple):
    """Writes the results of a session.

    Attributes:
        folder: For its files; None: nothing is written.
        facts: What is written of the training itself, by key.
    """

    folder: Path | None
    facts: Mapping[str, object]

    def write_profile(self, profile: PipelineProfile) -> None:
        """Write the points that were measured, as CSV."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_profile(profile, self.folder / PROFILE)

    def write(self, found: Mapping[str, object]) -> None:
        """Write the facts, and what the session found, as JSON."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replace_file(self.folder / RESULTS) as new:
                new.write_text(json.dumps({**self.facts, **found}) + "\n", encoding="utf-8")


class PipelineLeader:
    """Rank 0 of a pipeline, which chooses plans and keeps the records.

    Args:
        schedule: The order of instructions.
        chooser: Asks the policy.
        sweep: Profiles the instructions; None: `profile` is known.
        profile: Its points, unless they are profiled.
        blocking_w: Power of a GPU that waits, W; None: as profiled.
        results: Writes what was profiled and done.

    Attributes:
        order: Of the present iteration.
        records: The iterations before.
        plans: The plans that have been in force since the profiling.
        profile: The points; None while they are profiled.
        slow: The stages that became slower; None while the instructions are profiled.
        slowdown: Pace that replicas impose.
        chooser: Asks the policy.
    """

    def __init__(
        self,
        schedule: PipelineSchedule,
        chooser: PlanChooser,
        sweep: ClockSweep | None,
        profile: PipelineProfile | None,
        blocking_w: float | None,
        results: PipelineResults,
    ) -> None:
        self.records: list[IterationRow] = []
        self.plans: list[ClockPlan] = []
        self.profile = profile
        self.slow: SlowStages | None = None
        self.slowdown = 1.0
        self.chooser = chooser
        self._schedule, self._graph = schedule, schedule_graph(schedule)
        self._sweep, self._blocking_w, self._results = sweep, blocking_w, results
        self._task: PipelineTask | None = None
        self.order = self._start() if sweep is None else self._measure(sweep)

    def fastest_s(self) -> float | None:
        """Time of an iteration at the highest clocks, s; None while it is profiled."""
        return None if self._task is None else self._task.fastest.time_s

    def finish(
        self,
        reports: Sequence[RankReport],
        totals: Sequence[RankTotals],
        others: Sequence[ReplicaPace],
    ) -> None:
        """Record an iteration, and set the order of the next one.

        Args:
            reports: What each rank did until the end of its last instruction.
            totals: The same until the next iteration.
            others: The pace of the other replicas.
        """
        order = self.order
        slow = () if self.slow is None else self.slow.update(reports, order.plan)
        self.records.append(
            IterationRow(
                number=len(self.records) + 1,
                measures=order.measures,
                plan=order.number,
                pipeline_s=max(report.time_s for report in reports),
                time_s=max(total.time_s for total in totals),
                energy_j=tuple(total.energy_j for total in totals),
                slow=slow,
                slowdown=self.slowdown,
            )
        )
        if not order.measures:
            self.order = self._follow_pace(order, others)
            return
        assert self._sweep is not None
        self._sweep.add(reports)
        if self._sweep.clock_mhz is not None:
            self.order = self._measure(self._sweep)
            return
        self.profile = self._sweep.profile(self._graph, self._blocking_w)
        self._results.write_profile(self.profile)
        self.order = self._start()

    def write(self, ended: str) -> None:
        """Write the results; `ended` says how the session did."""
        if ended == "done" and self._task is not None:
            self.chooser.end(self._progress())
        self._results.write(
            {
                "ended": ended,
                "blocking_power_w": None if self.profile is None else self.profile.blocking_w,
                "decisions": [decision._asdict() for decision in self.chooser.decisions],
                "plans": self.plans,
                "iterations": [record._asdict() for record in self.records],
            }
        )

    def _measure(self, sweep: ClockSweep) -> Order:
        clock_mhz = sweep.clock_mhz
        assert clock_mhz is not None
        return Order(_plan_at(self._graph, clock_mhz), measures=True)

    def _start(self) -> Order:
        assert self.profile is not None
        self.slow = SlowStages(self.profile, self._graph)
        self._task = PipelineTask(self.profile, self._schedule)
        return self._put_in_force(self.chooser.start(self._task))

    def _follow_pace(self, order: Order, others: Sequence[ReplicaPace]) -> Order:
        """Ask for another plan if stages or replicas became slower, or are so no more."""
        assert self.profile is not None
        assert self.slow is not None
        task = PipelineTask(scale_profile(self.profile, self.slow.factors), self._schedule)
        is_changed, self._task = task != self._task, task
        slowdown = self._imposed(self._task.fastest.time_s, others)
        if abs(slowdown - self.slowdown) > TOLERANCE * self.slowdown:
            is_changed, self.slowdown = True, slowdown
        if not is_changed:
            return order
        plan = self.chooser.change_pace(self._task, self.slowdown, self._progress())
        return order if plan == order.plan else self._put_in_force(plan)

    def _progress(self) -> Progress:
        """What was trained since the profile was measured."""
        done = [record for record in self.records if not record.measures]
        time_s = sum(record.time_s for record in done)
        energy_j = sum(sum(record.energy_j) for record in done)
        return Progress(float(len(done)), time_s, time_s, energy_j)

    def _put_in_force(self, plan: ClockPlan) -> Order:
        self.plans.append(plan)
        return Order(plan, False, len(self.plans))

    def _imposed(self, fastest_s: float, others: Sequence[ReplicaPace]) -> float:
        """Least time of an iteration over the own one at the highest clocks."""
        known_s = [pace.fastest_s for pace in others if pace.fastest_s is not None]
        factor = max(known_s, default=0.0) / fastest_s
        return 1.0 if factor <= 1 + TOLERANCE else round(factor, 4)


def _plan_at(graph: PipelineGraph, clock_mhz: int) -> ClockPlan:
    return tuple((clock_mhz,) * len(positions) for positions in graph.positions)
