"""What the policies of elastic training systems share: one shape a number of nodes, and joining."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.replan import ElasticTask, ElasticView, Replan, Reshape, Shape

Join = Literal["loss", "now", "pays"]
"""When nodes that came are taken up: at the next loss, at the end of the step under way, or then if
what they add until the next loss is expected to exceed what the pause costs."""


class JoiningReplan(Replan):
    """Trains on all nodes, at the rate of the job's table.

    Args:
        join: When nodes that came are taken up.

    Attributes:
        from_storage: Whether each change of shape reads a checkpoint from storage.
    """

    from_storage: ClassVar[bool] = False

    def __init__(self, join: Join) -> None:
        self._join = join

    @abstractmethod
    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """The pause of a change of shape on so many nodes, s."""
        raise NotImplementedError

    @abstractmethod
    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """The shape on so many nodes, one of which is lost each `mean_loss_s` (s) on its own."""
        raise NotImplementedError

    def replan(self, ctx: Context, view: ElasticView) -> Reshape | None:
        """All nodes; spare ones as `join` says."""
        if view.moment == "gained" and not self._takes_up(view):
            return None
        task, nodes = view.task, view.nodes + view.spare
        shape = self.shape(task, nodes, view.mean_loss_s)
        pause_s = self.pause_s(task, nodes)
        return Reshape(shape, pause_s, from_storage=self.from_storage)

    def _takes_up(self, view: ElasticView) -> bool:
        """Whether the spare nodes are taken up at the end of the step.

        With `pays`: whether what they add over the mean time between losses of all nodes is more
        than what could be trained in the pause, and in writing a checkpoint where one is needed.
        """
        if self._join != "pays":
            return self._join == "now"
        task, nodes = view.task, view.nodes + view.spare
        before, after = task.rates[view.nodes], task.rates[nodes]
        commit_steps = self.shape(task, nodes, view.mean_loss_s).commit_steps
        write_s = 0.0 if commit_steps == 1 else task.checkpoint_s
        between_s = view.mean_loss_s / nodes
        return (after - before) * between_s > after * (self.pause_s(task, nodes) + write_s)
