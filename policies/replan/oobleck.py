"""Oobleck (SOSP '23): pipelines of several sizes, so that survivors of a loss have all layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.elastic.replanning import ElasticTask, Shape
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.replan._joining import Join, JoiningReplan


class Oobleck(JoiningReplan):
    """See `OobleckConfig`."""

    def __init__(self, config: OobleckConfig) -> None:
        super().__init__(config.join)

    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """The time to take another shape: survivors have the state."""
        return task.reconfigure_s

    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """Each step is committed at once."""
        return Shape(nodes, task.rates[nodes])


class OobleckConfig(PolicyConfig):
    """Pipelines that keep a copy of each layer: a loss costs the step under way and a short pause.

    Oobleck (SOSP '23). Its published engine takes up nodes that came at the next loss.
    """

    point: ClassVar[Point] = "replan"
    kind: Literal["oobleck"] = "oobleck"
    policy = Oobleck
    rates_of: ClassVar[str] = "oobleck"
    join: Join = "loss"
    """When nodes that came are taken up: at the next `loss`, `now` (at the end of the step), or now
    if it `pays`: if they add more until the next loss, as expected, than the pause costs."""
