"""Varuna (EuroSys '22): checkpoints in storage, from which all nodes restart."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.planning.checkpoint_intervals import daly_interval_s
from wattkeeper.policies.points.replan import ElasticTask, Shape
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.replan._joining import Join, JoiningReplan


class Varuna(JoiningReplan):
    """See `VarunaConfig`."""

    from_storage = True

    def __init__(self, config: VarunaConfig) -> None:
        super().__init__(config.join)
        self._every_steps = config.every_steps

    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """A restart; the checkpoint was written before."""
        return task.restart_s[nodes] - task.checkpoint_s

    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """A checkpoint after so many steps."""
        steps = 1
        if isinstance(self._every_steps, int):
            steps = self._every_steps
        else:
            every_s = daly_interval_s(task.checkpoint_s, mean_loss_s / nodes)
            steps = max(1, round(every_s / task.step_s(nodes)))
        return Shape(nodes, task.rates[nodes], steps, task.checkpoint_s)


class VarunaConfig(PolicyConfig):
    """Checkpoints in storage: a loss costs the steps since the last one, and a restart.

    Varuna (EuroSys '22).
    """

    kind: Literal["varuna"] = "varuna"
    policy = Varuna
    rates_of: ClassVar[str] = "varuna"
    join: Join = "loss"
    """When nodes that came are taken up: at the next `loss`, `now` (at the end of the step, after a
    checkpoint), or now if it `pays`: if they add more until the next loss, as expected, than the
    pause costs."""
    every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["daly"] = 10
    """Steps from one checkpoint to the next; `daly`: as follows from the losses observed so far
    (Daly, FGCS 2006), looked at whenever the shape changes."""
