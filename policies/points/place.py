"""The decision point `Place`: where a job runs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.policy import Context, Policy

if TYPE_CHECKING:
    from wattkeeper.policies.arrays import Floats, Ints


@mypyc_attr(allow_interpreted_subclasses=True)
class ClusterView:
    """Read-only view of the cluster for `Place`.

    Attributes:
        gpu_types: Names of the GPU types, in the order of the scenario.
        node_type: Index into `gpu_types` by node, shape (nodes,).
        capacity: GPUs by node, shape (nodes,).
        racks: Number of the rack by node, shape (nodes,); -1 if it is not known.
        deadlines_s: When a node is expected to go down, as it announced, s, shape (nodes,);
            infinite if it did not.
        slowdowns: Time of an iteration over that at full pace by node, shape (nodes,): 1 or more.
    """

    gpu_types: tuple[str, ...]
    node_type: Ints
    capacity: Ints
    racks: Ints
    deadlines_s: Floats
    slowdowns: Floats

    @property
    @abstractmethod
    def free(self) -> Ints:
        """Unallocated GPUs by node, shared ones not included, shape (nodes,)."""
        raise NotImplementedError

    @property
    @abstractmethod
    def changes(self) -> Ints:
        """Change counters by node, shape (nodes,): they grow with every allocation and release.

        What was computed for a node remains valid until its counter changes.
        """
        raise NotImplementedError

    @abstractmethod
    def shared(self, node: int) -> Mapping[int, int]:
        """Free thousandths of the shared GPUs of a node, by GPU index."""
        raise NotImplementedError

    @abstractmethod
    def types_for(self, job: Job) -> tuple[int, ...]:
        """Indices of the GPU types that a job may run on, ascending."""
        raise NotImplementedError

    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        """Best fit: the node of a type with the fewest free GPUs, but at least `gpus`.

        Ties go to the lowest number; None if there is no such node.
        """
        free = self.free
        (nodes,) = ((free >= gpus) & (self.node_type == gpu_type)).nonzero()
        return int(nodes[free[nodes].argmin()]) if len(nodes) else None

    def first_node(self, gpus: int, gpu_type: int) -> int | None:
        """First fit: the first node of a type with at least `gpus` free; None if there is none."""
        fitting = (self.free >= gpus) & (self.node_type == gpu_type)
        node = int(fitting.argmax())
        return node if fitting[node] else None


@mypyc_attr(allow_interpreted_subclasses=True)
class Place(Policy):
    """On which GPUs does this job run?"""

    @abstractmethod
    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Choose slots on nodes of one GPU type; empty if the job does not fit now.

        The choice must depend on nothing but the job's demand, unless the policy overrides
        `wake_s`, and the call must not change the policy's state: it is also asked hypothetically,
        by `CapacityView.fits`.
        """
        raise NotImplementedError

    def wake_s(self, ctx: Context) -> float:
        """When a job that did not fit may fit although nothing was given back, s; infinite: never.

        A policy that overrides this is asked anew about each job whenever jobs are scheduled, and
        its choice may depend on the whole job and on the time. (What fits is otherwise the same for
        all jobs of one demand, until GPUs or power are taken or given back.)
        """
        return math.inf
