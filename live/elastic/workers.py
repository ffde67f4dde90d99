"""The workers of an elastic training: a process a node, which may end at any time and come back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.live.elastic.orders import NO_STATE, LeaveGroup, Order, Reply
from wattkeeper.live.elastic.replica import MakeReplica
from wattkeeper.live.elastic.worker_process import WorkerProcess
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.sim.cluster.losses import LossRate, NodeChange

MOST_STARTS: Final = 3
"""Starts in a row after which no worker was ready, and none is tried again."""


class LostWorker(NamedTuple):
    """A worker that ended.

    Attributes:
        node: Its node.
        time_s: When, s.
        warned_s: How long before it announced that, s; 0: it did not.
    """

    node: int
    time_s: float
    warned_s: float


class Workers:
    """See the module.

    Args:
        make: Makes their replicas.
        nodes: Number of nodes.
        folder: For what they print.
        away_s: Time from a loss that no change stated to the node's return, s.
        patience_s: A worker that takes longer for an order is killed, s; others wait half as long
            for it.

    Attributes:
        running: The workers that run, by node.
        lost: Those that ended, until the coordinator takes them.
        rate: The rate of losses.
        why_broken: What a worker said when its group broke last.
    """

    def __init__(
        self, make: MakeReplica, nodes: int, folder: Path, away_s: float, patience_s: float
    ) -> None:
        self._make, self._folder = make, folder
        self._away_s, self._patience_s = away_s, patience_s
        self._begun_s = time.monotonic()
        self._changes: list[NodeChange] = []
        self._starts = 0
        self.running: dict[int, WorkerProcess] = {}
        self.lost: list[LostWorker] = []
        self.rate = LossRate(nodes)
        self.why_broken = ""
        self._up = set(range(nodes))
        self._returns_s = dict.fromkeys(range(nodes), 0.0)

    def now_s(self) -> float:
        """Time since the training began, s."""
        return time.monotonic() - self._begun_s

    def begin(self, changes: Iterable[NodeChange]) -> None:
        """Begin the training, in which nodes change, with workers that have no state."""
        self._begun_s = time.monotonic()
        self._changes = sorted(changes, key=lambda change: change.time_s, reverse=True)
        self.rate = LossRate(len(self._up))
        self.lost.clear()
        for worker in self.running.values():
            worker.steps = NO_STATE

    def ready(self) -> list[int]:
        """Nodes whose workers can join a group, ascending."""
        return sorted(node for node, worker in self.running.items() if worker.is_ready)

    def may_come(self) -> int:
        """How many nodes run, or are known to come back."""
        back = {change.node for change in self._changes if change.event == "up"}
        back |= {node for node, time_s in self._returns_s.items() if time_s < math.inf}
        return len(back | self.running.keys())

    def steps_of(self, nodes: Iterable[int]) -> dict[int, int]:
        """Steps after which the states of nodes are, by their last replies."""
        return {node: self.running[node].steps for node in nodes if node in self.running}

    def command(
        self, orders: Mapping[int, Order], leave_s: Mapping[int, float] | None = None
    ) -> dict[int, Reply]:
        """Give orders, and wait until all workers that got one replied or ended.

        Once one of them ended or left, the others leave the group.

        Args:
            orders: By node.
            leave_s: Nodes that leave the group meanwhile, and when, as `time.monotonic`, s.

        Returns:
            The replies by node, without those of workers that ended.

        Raises:
            InputError: If the code of the training raised an exception.
        """
        asked = {node: self.running.get(node) for node in orders}
        for node, order in orders.items():
            self._send(node, order)
        for node, time_s in (leave_s or {}).items():
            time.sleep(max(0.0, time_s - time.monotonic()))
            self._send(node, LeaveGroup())
        replies: dict[int, Reply] = {}
        until_s = time.monotonic() + self._patience_s
        left = bool(leave_s)
        while True:
            alive = [node for node, worker in asked.items() if self._is_alive(node, worker)]
            broken = any(reply.kind == "broken" for reply in replies.values())
            if not left and (broken or len(alive) < len(orders)):
                left = True
                for node in alive:
                    self._send(node, LeaveGroup())
            waiting = [node for node in alive if self.running[node].is_busy]
            if not waiting:
                said = [reply.text for reply in replies.values() if reply.kind == "broken"]
                self.why_broken = said[0] if said else self.why_broken
                return {node: replies[node] for node in alive}
            replies |= dict(self.watch(max(0.0, until_s - time.monotonic())))
            if time.monotonic() > until_s:
                for node in waiting:
                    self.kill(node)
                until_s = math.inf

    def carry_out(self, orders: Mapping[int, Order]) -> bool:
        """Give orders as `command` does; whether all that got one carried it out."""
        return are_done(orders, self.command(orders))

    def watch(self, timeout_s: float = math.inf) -> list[tuple[int, Reply]]:
        """Wait until something happens, and take note of it; returns the replies to orders."""
        self._change_nodes()
        wait_s = min(timeout_s, self._next_change_s() - self.now_s())
        signs = [sign for worker in self.running.values() for sign in worker.signs]
        timeout = None if wait_s == math.inf else max(0.0, wait_s)
        happened = connection.wait(signs, timeout)
        replies = []
        for node in sorted(self.running):
            worker = self.running[node]
            reply = worker.receive(happened, self.now_s())
            if reply is not None and self._take(node, reply):
                replies.append((node, reply))
            if worker.has_ended():
                self._lose(node)
        return replies

    def kill(self, node: int) -> None:
        """Kill the worker of a node, if it runs."""
        if node in self.running:
            self.running[node].kill()

    def end(self) -> None:
        """Kill all workers, and wait until they are gone."""
        for worker in self.running.values():
            worker.kill()
            worker.close()
        self.running.clear()

    def output_of(self, node: int) -> Path:
        """The file with what the worker of a node printed."""
        return self._folder / f"node-{node}.log"

    def _is_alive(self, node: int, worker: WorkerProcess | None) -> bool:
        """Whether a worker runs; not another one of its node that came since."""
        return worker is not None and self.running.get(node) is worker

    def _send(self, node: int, order: Order) -> None:
        if node in self.running:
            self.running[node].send(order)

    def _take(self, node: int, reply: Reply) -> bool:
        """Take note of a reply; whether it is one to an order, and not that the worker is ready."""
        worker = self.running[node]
        if reply.kind == "failed":
            raise InputError(
                f"the worker of node {node} failed: {reply.text}; what it printed is in "
                f"{self.output_of(node)}"
            )
        if worker.is_ready:
            return True
        worker.is_ready, self._starts = True, 0
        self._returns_s.pop(node, None)
        if node not in self._up:
            self._up.add(node)
            self.rate.change(self.now_s(), "up")
        return False

    def _change_nodes(self) -> None:
        """Let nodes go down, announce that, or come back whose time it is."""
        now_s = self.now_s()
        while self._changes and self._changes[-1].time_s <= now_s:
            change = self._changes.pop()
            if change.event == "notice" and change.node in self.running:
                self.running[change.node].announce()
            elif change.event == "down":
                self._returns_s[change.node] = math.inf
                self.kill(change.node)
            elif change.event == "up" and change.node in self._returns_s:
                self._returns_s[change.node] = now_s
        for node, time_s in self._returns_s.items():
            if time_s <= now_s and node not in self.running:
                output = self.output_of(node)
                self.running[node] = WorkerProcess(node, self._make, output, self._patience_s / 2)

    def _next_change_s(self) -> float:
        returns = [time_s for node, time_s in self._returns_s.items() if node not in self.running]
        changes = [change.time_s for change in self._changes[-1:]]
        return min([*returns, *changes], default=math.inf)

    def _lose(self, node: int) -> None:
        """Take note of a worker that ended.

        Raises:
            EnvironmentLacks: If workers end again and again before they are ready.
        """
        worker, now_s = self.running.pop(node), self.now_s()
        worker.close()
        if node in self._up:
            self._up.discard(node)
            self.rate.change(now_s, "down")
        if worker.is_ready:
            self.lost.append(LostWorker(node, now_s, max(0.0, now_s - worker.noticed_s)))
        else:
            self._starts += 1
            if self._starts == MOST_STARTS:
                raise EnvironmentLacks(
                    f"the worker of node {node} ended with exit code {worker.exit_code} "
                    f"before it was ready, as {MOST_STARTS} in a row did; what it printed is in "
                    f"{self.output_of(node)}"
                )
        self._returns_s.setdefault(node, now_s + self._away_s)


def are_done(orders: Mapping[int, Order], replies: Mapping[int, Reply]) -> bool:
    """Whether all workers that got orders carried them out."""
    return len(replies) == len(orders) and all(each.kind == "done" for each in replies.values())
