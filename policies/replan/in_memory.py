"""Checkpoints in the memory of other nodes, as of Gemini (SOSP '23)."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.points.replan import ElasticTask, Shape
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.replan._joining import Join, JoiningReplan


class InMemory(JoiningReplan):
    """See `InMemoryConfig`."""

    def __init__(self, config: InMemoryConfig) -> None:
        super().__init__(config.join)

    def pause_s(self, task: ElasticTask, nodes: int) -> float:
        """A restart that neither writes to storage nor reads from it."""
        return max(0.0, task.restart_s[nodes] - 2 * task.checkpoint_s)

    def shape(self, task: ElasticTask, nodes: int, mean_loss_s: float) -> Shape:
        """Each step is committed at once: other nodes hold its state."""
        return Shape(nodes, task.rates[nodes])


class InMemoryConfig(PolicyConfig):
    """State is copied to the memory of other nodes in each step: a loss costs it, and a restart.

    As of Gemini (SOSP '23), if copies are free and never lost together.
    """

    kind: Literal["in-memory"] = "in-memory"
    policy = InMemory
    rates_of: ClassVar[str] = "varuna"
    join: Join = "now"
    """When nodes that came are taken up: at the next `loss`, `now` (at the end of the step), or now
    if it `pays`: if they add more until the next loss, as expected, than the pause costs."""
