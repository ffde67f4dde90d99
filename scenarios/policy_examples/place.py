"""A placement that keeps noisy jobs away from the others.

Jobs that draw much power heat and disturb what runs beside them. How much the jobs of a group draw
is learnt from those that ended; those above the mean fill the cluster from its last node on, all
others from the first one. They meet only when the cluster is full.
"""

import copy
import math
from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.place.first_fit import FirstFitConfig
from wattkeeper.policies.points.job import NEW, WHOLE, Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import PolicyConfig


class QuietNeighbours(Place):
    """See `QuietNeighboursConfig`."""

    def __init__(self, config: "QuietNeighboursConfig") -> None:
        self.config = config
        # The state: energy (J) and GPU-seconds by group.
        self.known: dict[str, list[float]] = {}
        self.fractions = FirstFitConfig().build()

    def on_submit(self, ctx: Context, job: Job) -> None:
        """A job begins to wait."""
        self.known.setdefault(job.group_id, [0.0, 0.0])

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn what an attempt drew."""
        known = self.known.get(outcome.start.job.group_id)
        if known is not None:  # else it was never submitted to this policy
            known[0] += outcome.energy_j
            known[1] += outcome.time_s * outcome.start.job.gpus

    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """Slots from one end of the cluster; () if the job does not fit now.

        It is also asked hypothetically, so it must not change the state.
        """
        if job.gpu_milli < WHOLE:
            shared: Placement = self.fractions.place(ctx, job, cluster)
            return shared
        for gpu_type in cluster.types_for(job):
            nodes = [
                node
                for node, free in enumerate(cluster.free.tolist())
                if free and cluster.node_type[node] == gpu_type
            ]
            if self.is_noisy(job):
                nodes.reverse()
            # A node that holds the whole job before one that holds a part of it.
            nodes.sort(key=lambda node: int(cluster.free[node]) < job.gpus)
            slots, left = [], job.gpus
            for node in nodes:
                # Answers have Python's numbers, not those of numpy.
                taken = min(left, int(cluster.free[node]))
                slots.append((node, taken, NEW))
                left -= taken
                if not left:
                    return tuple(slots)
        return ()

    def wake_s(self, ctx: Context) -> float:
        """Never; that it is defined lets the choice depend on more than the job's demand."""
        return math.inf

    def is_noisy(self, job: Job) -> bool:
        """Whether the jobs of its group drew more than the mean, by the margin."""
        energy_j, gpu_s = self.known.get(job.group_id, [0.0, 0.0])
        all_j = sum(energy_j for energy_j, _ in self.known.values())
        all_s = sum(gpu_s for _, gpu_s in self.known.values())
        return gpu_s > 0 and energy_j / gpu_s > self.config.margin * all_j / all_s

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as a copy."""
        return copy.deepcopy(self.known)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, which stays as it is."""
        self.known = copy.deepcopy(state)


class QuietNeighboursConfig(PolicyConfig):
    """Groups that draw more power than the mean from the last node on, others from the first.

    Jobs that ask for fractions of GPUs are placed by first fit.
    """

    kind: Literal["quiet-neighbours"] = "quiet-neighbours"
    policy = QuietNeighbours
    margin: float = Field(default=1.05, gt=0)
    """Of the mean power of a GPU; a group above it is noisy."""
