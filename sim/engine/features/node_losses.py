"""Nodes that go down, come back, slow down, or announce that they will go down."""

from __future__ import annotations

import math
from typing import Final

from wattkeeper.sim.attempts.attempt import Execution
from wattkeeper.sim.attempts.pace import NODE, Pace
from wattkeeper.sim.cluster.losses import LossRate, NodeChange, RunLosses
from wattkeeper.sim.engine.board import IdleCount
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.features.retuner import Retuner
from wattkeeper.sim.engine.lifecycle import Lifecycle
from wattkeeper.sim.engine.selection.selector import Selector
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.kernel.loop import DOWN, SIGNAL, UP, Callback, schedule_at
from wattkeeper.sim.recording.row_types import LossRow, NodeRow

MOST_LOSSES: Final = 10_000
"""After so many lost attempts a job is given up."""

PRIORITIES: Final = {"absent": DOWN, "down": DOWN, "up": UP, "notice": SIGNAL, "degraded": SIGNAL}


class NodeLosses(Subscriber):
    """Lets changes of nodes happen, each scheduled when the one before it happened.

    Args:
        core: What the parts of the world share.
        losses: The changes, and what they cost.
        rate: The observed rate of losses.
        select: Is told of jobs that lose their GPUs.
        lifecycle: Ends attempts, and lets their jobs wait.
        retuner: Asks `Tune` about attempts that slow nodes slow down.
    """

    def __init__(
        self,
        core: Core,
        losses: RunLosses,
        rate: LossRate,
        select: Selector,
        lifecycle: Lifecycle,
        retuner: Retuner,
    ) -> None:
        self._rules, self._changes, racks = losses
        if racks:
            core.cluster.set_racks(racks)
        self._loop = core.loop
        self._cluster = core.cluster
        self._nodes = core.nodes
        self._rate = rate
        self._room = core.room
        self._board = core.board
        self._select = select
        self._lifecycle = lifecycle
        self._booking = core.booking
        self._host = core.host
        self._retuner = retuner
        self._recorder = core.recorder
        self._journal = core.recorder.journal
        self._subscribers = core.subscribers
        self._next = next(self._changes, None)
        self._boots: dict[int, Callback] = {}
        self._idle_changes = IdleCount(core.board)
        core.recorder.follows_nodes = True
        self._journal.add_maker("node", "events")
        self._maker = self._journal.maker_of("node")

    def begin_run(self) -> None:
        """Schedule the first change."""
        self._schedule()

    def _schedule(self) -> None:
        """Schedule the next change, unless no job is left that it can matter to."""
        change = self._next
        if change is None:
            return
        is_beyond = self._idle_changes.is_beyond()
        if self._board.has_work and not is_beyond:
            happens = Callback(self._happen, change)
            schedule_at(self._loop, change.time_s, happens, PRIORITIES[change.event])

    def _happen(self, change: NodeChange) -> None:
        self._next = next(self._changes, None)
        node, now_s = change.node, self._loop.now_s
        jobs, lost_gpu_s, lost_j = 0, 0.0, 0.0
        if change.event == "notice":
            self._announce(change)
        elif change.event == "degraded":
            self._cluster.slow_down(node, change.factor)
            jobs = sum([self._keep_pace(execution) for execution in self._board.on_node(node)])
        elif change.event == "up":
            self._return(change)
        else:
            jobs, lost_gpu_s, lost_j = self._go_down(node)
        if change.event in ("notice", "degraded"):
            self._room.grow()
            self._board.ask_for_pass()
        else:
            self._rate.change(now_s, change.event)
        row = NodeRow(
            change.time_s,
            node,
            change.event,
            change.cause,
            change.deadline_s if change.event == "notice" else math.nan,
            jobs,
            lost_gpu_s,
            lost_j,
            change.factor if change.event == "degraded" else math.nan,
        )
        self._recorder.node_changes.append(row)
        self._schedule()

    def _announce(self, change: NodeChange) -> None:
        """Let a node announce that it will go down."""
        self._cluster.announce(change.node, max(self._loop.now_s, change.deadline_s))
        for part in self._subscribers.notice_node:
            part.notice_node(change.node)
        if self._rules.heeds_notice:
            for execution in self._board.on_node(change.node):
                execution.write_checkpoint()

    def _return(self, change: NodeChange) -> None:
        """Let a node that was down come back; jobs start there once it has booted."""
        node, now_s = change.node, self._loop.now_s
        self._cluster.renew(node, change.rack)
        self._nodes.come_up(node, now_s)
        self._boots[node] = boot = Callback(self._reopen, node)
        schedule_at(self._loop, now_s + self._rules.boot_s, boot, UP)

    def _reopen(self, node: int) -> None:
        """Let jobs start on a node that came back."""
        del self._boots[node]
        self._cluster.reopen(node)
        self._room.grow()
        self._board.ask_for_pass()

    def _go_down(self, node: int) -> tuple[int, float, float]:
        """Let a node go down; returns jobs, GPU time (s) and energy (J) that are lost."""
        lost_gpu_s = lost_j = 0.0
        holders = self._board.on_node(node)
        for execution in holders:
            gpu_s, energy_j = self._lose(execution, node)
            lost_gpu_s += gpu_s
            lost_j += energy_j
        pending = self._boots.pop(node, None)
        if pending is not None:
            pending.cancel()
            self._recorder.booting_losses += 1
        else:
            self._cluster.close(node)
        for part in self._subscribers.lose_node:
            part.lose_node(node, pending is None and not holders)
        self._nodes.go_down(node, self._loop.now_s)
        self._room.shrink()
        return len(holders), lost_gpu_s, lost_j

    def _lose(self, execution: Execution, node: int) -> tuple[float, float]:
        """End an attempt whose node went down; its job waits for its next attempt.

        Returns:
            GPU time of training (s) and energy (J) since its last checkpoint.
        """
        board, attempt, now_s = self._board, execution.attempt, self._loop.now_s
        job = attempt.job
        if job.number in board.services:
            return board.services[job.number].lose(execution, node)
        board.note(self._maker, attempt, self._journal.index_choice("lost"))
        lost = execution.lose()
        attempt.count_idle(now_s)
        self._booking.book_broken_off(execution, lost, now_s)
        self._recorder.add_detail(LossRow(node, lost.lost_time_s, lost.lost_energy_j))
        self._lifecycle.release(attempt)
        board.halt(job.number)
        lost_gpu_s = lost.lost_time_s * job.gpus_held
        if attempt.losses == MOST_LOSSES:
            start = execution.begun_with()
            if start is not None:
                self._host.lose(start)
            self._lifecycle.give_up(attempt)
            return lost_gpu_s, lost.lost_energy_j
        self._select.pause(job)
        if self._rules.requeues_last:
            job = job.replace(submit_time_s=now_s)
        execution.attempt = attempt.after_loss(job, lost, now_s)
        self._lifecycle.requeue_lost(execution)
        return lost_gpu_s, lost.lost_energy_j

    def resume_lost(self, execution: Execution) -> float:
        """The time to read the checkpoint that an attempt resumes from, s."""
        return self._rules.read_s if execution.attempt.kept_time_s > 0 else 0.0

    def begin(self, execution: Execution) -> None:
        """Let an attempt write checkpoints, and keep the pace of its slowest node."""
        nodes = len(execution.attempt.placement)
        rule = self._rules.checkpoints_of(nodes, self._rate, self._loop.now_s)
        execution.write_checkpoints(rule)
        self._keep_pace(execution)

    def _keep_pace(self, execution: Execution) -> bool:
        """Let an attempt keep the pace of its slowest node; returns whether its pace changes."""
        attempt, before = execution.attempt, execution.slowdown
        execution.slow(NODE, Pace(self._cluster.slowdown(attempt.placement)))
        slowdown = execution.slowdown
        if slowdown == before:
            return False
        self._board.note(self._maker, attempt, self._journal.index_choice(f"slowdown={slowdown}"))
        self._retuner.ask_slowed(attempt.job.number)
        return True
