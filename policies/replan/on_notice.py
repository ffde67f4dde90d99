"""Checkpoints that are written only once a node announces its loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.points.replan import ElasticTask, Shape
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.replan._joining import Join, JoiningReplan


class OnNotice(JoiningReplan):
    """See `OnNoticeConfig`."""

    from_storage = True

    def __init__(self, config: OnNoticeConfig) -> None:
        super().__init__(config.join)

    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """A restart; the checkpoint was written before."""
        return task.restart_s[nodes] - task.checkpoint_s

    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """No commits but on notice."""
        return Shape(nodes, task.rates[nodes], 0, task.checkpoint_s, saves_on_notice=True)


class OnNoticeConfig(PolicyConfig):
    """A checkpoint only where a loss is announced: another loss costs all that was not saved.

    The notice must come before the loss by the time that a checkpoint takes.
    """

    kind: Literal["on-notice"] = "on-notice"
    policy = OnNotice
    rates_of: ClassVar[str] = "varuna"
    join: Join = "loss"
    """When nodes that came are taken up: at the next `loss`, `now` (at the end of the step, after a
    checkpoint), or now if it `pays`: if they add more until the next loss, as expected, than the
    pause costs."""
