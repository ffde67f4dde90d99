"""A shape of elastic jobs that takes up nodes with patience.

Each change of shape costs a pause, and where nodes come and go, much of the time. So nodes that
came are taken up only if none was lost for some of the times that it was asked.
"""

import copy
from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import ElasticView, Replan, Reshape, Shape
from wattkeeper.policies.registry import PolicyConfig


class Patient(Replan):
    """See `PatientConfig`."""

    def __init__(self, config: "PatientConfig") -> None:
        self.config = config
        # The state: offers of nodes since the last loss, by job.
        self.offers: dict[str, int] = {}

    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """A shape on all nodes; None leaves spare nodes alone, which is allowed when they came."""
        if view.moment == "lost":
            self.offers[view.job_id] = 0
        if view.moment == "gained":
            offers = self.offers.get(view.job_id, 0) + 1
            self.offers[view.job_id] = offers
            if offers <= self.config.patience:
                return None
        task, nodes = view.task, view.nodes + view.spare
        # The state is copied to other nodes in each step, so that nothing is read from storage.
        shape = Shape(nodes, task.rates[nodes])
        return Reshape(shape, task.restart_s[nodes])

    def state_dict(self) -> dict[str, Any]:
        """What was counted, as a copy."""
        return copy.deepcopy(self.offers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, which stays as it is."""
        self.offers = copy.deepcopy(state)


class PatientConfig(PolicyConfig):
    """Takes up new nodes after some offers without a loss between them.

    Each step is committed at once, as with copies of the state in the memory of other nodes.
    """

    kind: Literal["patient"] = "patient"
    policy = Patient
    patience: int = Field(default=2, ge=0)
    """Offers of nodes that are declined after a loss."""
