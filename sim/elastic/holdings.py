"""The nodes that elastic jobs hold: each set of them is an attempt, with a record of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.elastic.ledger import Fate, Spent
from wattkeeper.sim.elastic.training import ElasticTraining
from wattkeeper.sim.recording.row_types import ShapeRow, SizeRow

if TYPE_CHECKING:
    from wattkeeper.sim.engine.world import ElasticParts


class Holdings:
    """See the module.

    Args:
        parts: The parts of the world that they work with.
        gpus_per_node: GPUs of each node of the cluster.

    Attributes:
        idle_w: Power of an idle node, W.
        busy_w: Power of a node that trains, W.
    """

    def __init__(self, parts: ElasticParts, gpus_per_node: int) -> None:
        self._parts, self._loop = parts, parts.core.loop
        self._cluster, self._recorder = parts.core.cluster, parts.core.recorder
        self._gpus = gpus_per_node
        power = next(iter(self._cluster.spec.power.values()))
        self.idle_w = power.idle_w * gpus_per_node
        self.busy_w = (power.busy_w or 0.0) * gpus_per_node

    def place(self, nodes: Sequence[int]) -> Placement:
        """The placement on whole nodes."""
        return tuple([(node, self._gpus, NEW) for node in nodes])

    def size(self, job: Job, nodes: int) -> Job:
        """A job as it counts in the cluster while it holds so many nodes."""
        return job.replace(gpus=nodes * self._gpus, reserved_w=nodes * self.busy_w)

    def change(
        self, training: ElasticTraining, nodes: tuple[int, ...], fate: Fate, lost: int | None = None
    ) -> tuple[float, float]:
        """End the present attempt, and hold other nodes in the next one; returns as `close`."""
        cost, before = self.close(training, fate, lost), set(training.nodes)
        self.release(training)
        parts, attempt, now_s = self._parts, training.attempt, self._loop.now_s
        sized, placement = self.size(attempt.job, len(nodes)), self.place(nodes)
        if parts.core.nodes.vary:
            others = tuple(slot for slot in placement if slot[0] not in before)
            kept = tuple(slot for slot in placement if slot[0] in before)
            parts.core.nodes.occupy(kept, now_s)
            training.delay(parts.core.nodes.occupy(others, now_s))
        if placement:
            self._cluster.take(sized, placement)
            parts.core.budget.reserve(sized, attempt.gpu_type)
        parts.core.room.shrink()
        training.attempt = Attempt(
            attempt.job,
            attempt.number + (now_s > attempt.begun_s),
            placement,
            self._recorder.journal.index_choice(placement),
            attempt.gpu_type,
            now_s,
            self.idle_w * len(nodes),
        )
        training.hold(nodes, self._cluster.slowdown(placement) if nodes else 1.0)
        parts.core.booking.hold(training.attempt)
        return cost

    def release(self, training: ElasticTraining) -> None:
        """Give back all nodes of a job."""
        parts, attempt = self._parts, training.attempt
        self._cluster.release(attempt.job, attempt.placement)
        if parts.core.nodes.vary:
            parts.core.nodes.vacate(attempt.placement, self._loop.now_s)
        parts.core.budget.release(attempt.job)
        parts.core.room.grow()

    def close(
        self, training: ElasticTraining, fate: Fate, lost: int | None = None, reached: bool = False
    ) -> tuple[float, float]:
        """Record the present attempt, which ends now, unless it began now.

        Args:
            training: The job.
            fate: What becomes of steps that are not committed.
            lost: The node with which it ends; None: none.
            reached: Whether it trained all its samples.

        Returns:
            GPU time (s) and energy (J) of the steps that are lost, at full pace.
        """
        attempt, recorder, carried = training.attempt, self._recorder, training.carried
        spent = training.end_shape(fate)
        earlier_s = carried.settle(spent, fate)
        batch, nodes = training.task.batch, len(training.nodes)
        if attempt.begun_s == self._loop.now_s:
            samples, lost_samples = spent.committed * batch, spent.lost_steps * batch
            carried.amend(samples, lost_samples, lost, earlier_s)
            return earlier_s * self._gpus, earlier_s * self.busy_w
        self._hold_writes(attempt, spent.writes)
        busy_w = self.busy_w * nodes
        time_s, lost_s = spent.steps_s - spent.slow_s, spent.lost_s - spent.lost_slow_s
        if spent.slow_s or spent.write_slow_s:
            attempt.slow_s += spent.slow_s + spent.write_slow_s
            attempt.add_overhead(spent.slow_s, spent.slow_s * busy_w)
        energy_j = time_s * busy_w
        cost = self._parts.core.booking.book_shape(attempt, energy_j, time_s, busy_w, reached)
        used_s, used_j, used = training.used
        training.used = used_s + time_s, used_j + energy_j, used + cost
        recorder.shapes.append(self._row(training, spent))
        recorder.add_detail(SizeRow(nodes * self._gpus))
        carried.add(spent, lost, lost_s)
        gpu_s, earlier_j = earlier_s * self._gpus, earlier_s * self.busy_w
        return lost_s * nodes * self._gpus + gpu_s, lost_s * self.busy_w * nodes + earlier_j

    def drop_work(self, training: ElasticTraining) -> None:
        """Lose what a job would go on with."""
        lost_s = training.carried.lose()
        lost_samples = training.ledger.lose() * training.task.batch
        training.carried.amend(0.0, lost_samples, None, lost_s)

    def _hold_writes(self, attempt: Attempt, writes: Sequence[tuple[float, float]]) -> None:
        """Count writes of checkpoints as times without training."""
        idle_w, power = attempt.idle_w, attempt.power
        for from_s, to_s in writes:
            attempt.add_overhead(to_s - from_s, (to_s - from_s) * idle_w)
            self._recorder.add_power_change(attempt.job.number, from_s, -power)
            self._recorder.add_power_change(attempt.job.number, to_s, power)
        attempt.holds += tuple(writes)

    def _row(self, training: ElasticTraining, spent: Spent) -> ShapeRow:
        """The row of `shapes.parquet` of an attempt that ends now."""
        attempt, change, shape = training.attempt, training.change, training.shape
        batch = training.task.batch
        return ShapeRow(
            number=attempt.job.number,
            attempt=attempt.number,
            time_s=attempt.begun_s,
            until_s=self._loop.now_s,
            moment=training.moment,
            nodes=len(training.nodes),
            samples_per_s=0.0 if shape is None else shape.rate,
            pause_s=spent.pause_s,
            steps_s=spent.steps_s,
            write_s=spent.write_s,
            lost_s=spent.lost_s,
            open_s=spent.open_s,
            samples=spent.committed * batch,
            lost_samples=spent.lost_steps * batch,
            from_storage=change is not None and change.from_storage,
            copied_bytes=math.nan if change is None else change.copied_bytes,
            redundant_share=0.0 if shape is None else shape.redundant_share,
        )
