"""Nodes that sleep, wake, save checkpoints and are down; and the power under a cap."""

from __future__ import annotations

import math
from collections.abc import Iterable

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.recording.recorder import Recorder, whole_units
from wattkeeper.sim.recording.row_types import SleepRow


class NodeStates:
    """When a node fell idle, and until when it wakes or saves checkpoints.

    A node whose GPUs are all free sleeps `sleep_after_s` later and takes `wake_s` to wake. A node
    that a job was preempted on saves its state for `checkpoint_s`. A job that starts on it
    meanwhile waits until it is ready.

    Attributes:
        vary: Whether nodes sleep or save checkpoints at all.
    """

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        spec = cluster.spec
        self._cluster = cluster
        self._recorder = recorder
        self._after_s = spec.sleep_after_s
        self._idle_since: dict[int, float] = {}
        self._ready_s: dict[int, float] = {}
        self._down_since: dict[int, float] = {}
        self.vary = spec.sleep_after_s is not None or spec.checkpoint_s > 0
        if spec.sleep_after_s is not None:
            self._idle_since = dict.fromkeys(range(spec.nodes), 0.0)

    def occupy(self, placement: Placement, now_s: float) -> float:
        """Let a job take GPUs; returns how long it waits until it can use them, s."""
        delay_s = 0.0
        for node in _nodes(placement):
            since_s = self._idle_since.pop(node, None)
            if since_s is not None and self._after_s is not None:
                asleep_s = since_s + self._after_s
                if asleep_s < now_s:
                    self._record_sleep(node, asleep_s, now_s)
                    self._ready_s[node] = now_s + self._cluster.spec.wake_s
            delay_s = max(delay_s, self._ready_s.get(node, now_s) - now_s)
        return delay_s

    def vacate(self, placement: Placement, now_s: float) -> None:
        """Let the nodes that a job left fall idle."""
        if self._after_s is None:
            return
        for node in _nodes(placement):
            if self._cluster.is_empty(node):
                self._idle_since[node] = max(now_s, self._ready_s.get(node, now_s))

    def save_checkpoint(self, placement: Placement, now_s: float) -> None:
        """Let the nodes of a job that is about to be preempted save its state."""
        if not self._cluster.spec.checkpoint_s:
            return
        for node in _nodes(placement):
            saved_s = now_s + self._cluster.spec.checkpoint_s
            self._ready_s[node] = max(saved_s, self._ready_s.get(node, now_s))

    def go_down(self, node: int, now_s: float) -> None:
        """Let a node that no job is on go down: it draws nothing."""
        since_s = self._idle_since.pop(node, None)
        if since_s is not None and self._after_s is not None and since_s + self._after_s < now_s:
            self._record_sleep(node, since_s + self._after_s, now_s)
        self._ready_s.pop(node, None)
        self._down_since[node] = now_s

    def come_up(self, node: int, now_s: float) -> None:
        """Let a node that was down draw idle power again."""
        self._record_off(node, self._down_since.pop(node), now_s)
        if self._after_s is not None:
            self._idle_since[node] = now_s

    @property
    def some_are_down(self) -> bool:
        """Whether any node is."""
        return bool(self._down_since)

    def close(self) -> None:
        """Account for the nodes that sleep, or are down, at the end of the run."""
        for node, since_s in self._down_since.items():
            self._record_off(node, since_s, math.inf)
        if self._after_s is not None:
            for node, since_s in self._idle_since.items():
                self._record_sleep(node, since_s + self._after_s, math.inf)

    def _record_off(self, node: int, from_s: float, to_s: float) -> None:
        """Record that a node was down, as a sleep without power."""
        self._record_low(node, from_s, to_s, 0.0)

    def _record_sleep(self, node: int, from_s: float, to_s: float) -> None:
        self._record_low(node, from_s, to_s, self._power_of(node).sleep_w)

    def _record_low(self, node: int, from_s: float, to_s: float, gpu_w: float) -> None:
        """Record that each GPU of a node drew so much (W) instead of idle power."""
        gpus = int(self._cluster.capacity[node])
        less = whole_units((self._power_of(node).idle_w - gpu_w) * gpus)
        low = whole_units(gpu_w * gpus)
        self._recorder.add_event(SleepRow(from_s, to_s, low + less, low))

    def _power_of(self, node: int) -> GpuPower:
        cluster = self._cluster
        return cluster.spec.power[cluster.gpu_types[int(cluster.node_type[node])]]


SLACK_W = 1e-6
"""Sums of power that should be equal differ by less, by rounding."""


class PowerBudget:
    """Keeps what jobs may draw, with all idle GPUs, below the cluster's cap.

    A job counts with the most that it may draw on its GPUs until its power limit is chosen, and
    with what it draws then. Without a cap nothing is counted.

    Args:
        spec: The cluster and its cap.
        backend: Gives the power that a job may draw.

    Attributes:
        cap_w: The cap; None if there is none.
    """

    def __init__(self, spec: ClusterSpec, backend: Backend) -> None:
        self.cap_w = spec.power_cap_w
        self._spec = spec
        self._backend = backend
        self._free_w = (self.cap_w or 0.0) - spec.idle_power_w
        self._held_w: dict[int, tuple[float, float]] = {}

    def most_w(self, job: Job, gpu_type: str) -> float:
        """What a job counts with until its power limit is chosen, W."""
        return job.reserved_w or self._backend.most_power_w(job, gpu_type)

    def allows(self, job: Job, gpu_type: str, released_w: float = 0.0) -> bool:
        """Whether a job may start on a GPU type, if others released so much of what they hold."""
        more_w = self.most_w(job, gpu_type) - self._spec.idle_w(job, gpu_type)
        return more_w <= self._free_w + released_w + SLACK_W

    def set_cap(self, cap_w: float) -> None:
        """Keep below another cap, W, from now on; the power held may exceed it."""
        assert self.cap_w is not None
        self.cap_w = cap_w
        self._free_w = cap_w - self._spec.idle_power_w
        for more_w, _ in self._held_w.values():
            self._free_w -= more_w

    @property
    def spare_w(self) -> float:
        """What is left below the cap, W; below 0 if the power held exceeds it."""
        return self._free_w

    def counts(self, number: int) -> bool:
        """Whether a job, by its number, is counted."""
        return number in self._held_w

    def more_w(self, number: int) -> float:
        """What a job, by its number, holds beyond its idle GPUs, W."""
        return self._held_w.get(number, (0.0, 0.0))[0]

    def total_w(self, number: int) -> float:
        """What a job, by its number, holds, its idle GPUs included, W."""
        return sum(self._held_w.get(number, (0.0, 0.0)))

    def allows_change(self, job: Job, power_w: float) -> bool:
        """Whether a running job may draw so much from now on."""
        held = self._held_w.get(job.number)
        if held is None:
            return self.cap_w is None
        more_w, idle_w = held
        return power_w - idle_w <= self._free_w + more_w + SLACK_W

    def reserve(self, job: Job, gpu_type: str) -> None:
        """Count the most that a job may draw on a GPU type, since it starts."""
        if self.cap_w is not None:
            idle_w = self._spec.idle_w(job, gpu_type)
            more_w = self.most_w(job, gpu_type) - idle_w
            self._held_w[job.number] = more_w, idle_w
            self._free_w -= more_w

    def settle(self, job: Job, power_w: float) -> None:
        """Count what a job draws, since its power limit is chosen."""
        held = self._held_w.get(job.number)
        if held is not None:
            more_w, idle_w = held
            self._free_w += more_w - (power_w - idle_w)
            self._held_w[job.number] = power_w - idle_w, idle_w

    def release(self, job: Job) -> None:
        """Count a job no more."""
        if self.cap_w is not None:
            self._free_w += self._held_w.pop(job.number, (0.0, 0.0))[0]


def _nodes(placement: Placement) -> Iterable[int]:
    return dict.fromkeys(slot[0] for slot in placement)
