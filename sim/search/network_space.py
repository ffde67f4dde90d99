"""Spaces of networks: a choice of width, number of blocks, kind and kernel for each stage."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from wattkeeper.sim.search.architectures import Architecture, Block, Stage
from wattkeeper.sim.search.strategy import Choices, Proposal, Space, Strategy

RESIDUAL: Final = "residual"


class NetworkSpace:
    """Networks of a number of stages whose blocks are alike.

    Args:
        stages: Number of stages.
        widths: Widths of a stage.
        blocks: Numbers of blocks in a stage.
        kinds: Kinds of blocks: `plain` or `residual`.
        kernels: Kernels of the blocks.
    """

    def __init__(
        self,
        stages: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        kinds: Sequence[str],
        kernels: Sequence[int],
    ) -> None:
        self._stages, self._widths, self._blocks = stages, tuple(widths), tuple(blocks)
        self._kinds = tuple(Block(kind == RESIDUAL, kernel) for kind in kinds for kernel in kernels)
        properties = {"width": widths, "blocks": blocks, "kind": kinds, "kernel": kernels}
        self.space = Space(
            {
                f"stage{stage}/{name}": [*map(str, choices)]
                for stage in range(1, stages + 1)
                for name, choices in properties.items()
            }
        )

    def network(self, choices: Choices) -> Architecture:
        """The network of a configuration."""
        stages = []
        for width, blocks, kind, kernel in zip(*[iter(choices)] * 4, strict=True):
            block = Block(kind == RESIDUAL, int(kernel))
            stages.append(Stage(int(width), (block,) * int(blocks)))
        return tuple(stages)

    @property
    def mixed_size(self) -> int:
        """Number of networks whose blocks may differ within a stage."""
        of_stage = len(self._widths) * sum(len(self._kinds) ** n for n in self._blocks)
        return math.prod([of_stage] * self._stages)

    def draw_mixed(self, rng: random.Random) -> Architecture:
        """Draw a network whose blocks may differ within a stage."""
        return tuple(
            Stage(
                rng.choice(self._widths),
                tuple(rng.choice(self._kinds) for _ in range(rng.choice(self._blocks))),
            )
            for _ in range(self._stages)
        )


class InSpace(Strategy[Architecture]):
    """A strategy whose configurations are networks of a space."""

    def __init__(self, strategy: Strategy[Choices], space: NetworkSpace) -> None:
        super().__init__()
        self._strategy, self._space = strategy, space

    @override
    def propose(self) -> Proposal[Architecture] | None:
        found = self._strategy.propose()
        if found is None:
            return None
        network = self._space.network(found.network)
        return Proposal(found.trial, network, found.origin, found.label)

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        self._strategy.report(trial, accuracy)
