"""Bamboo's own published replay (NSDI '23): profiles by pipelines, a fixed time, dollars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.papers.replays.bamboo import EFFECTIVE, REDUNDANT, BambooModel, BambooReplay
from benchmarks.papers.replays.inputs import SpotChange, check_changes
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.policies.errors import InputError

RUN_MS: Final = 43_200_000
SPOT_PRICE, ON_DEMAND_PRICE = 0.91, 3.06
"""Of a node, $/h."""


class BambooProfile(NamedTuple):
    """A model.

    Attributes:
        stages: Places in a pipeline.
        rebalance_ms: Length of a pause to rebalance.
        batch: Samples of a step.
        step_ms: Length of a step with 1, 2, ... pipelines.
        on_demand_nodes: Nodes of the same training on demand.
        on_demand_step_s: Length of its steps, s.
    """

    stages: int
    rebalance_ms: int
    batch: int
    step_ms: tuple[int, ...]
    on_demand_nodes: int
    on_demand_step_s: float


BAMBOO_PROFILES: Final = {
    "GPT-2": BambooProfile(12, 20_000, 32, (1200, 1085, 1046, 1008), 32, 3.37),
    "BERT": BambooProfile(12, 20_000, 264, (4310, 2390, 1805, 1450), 20, 2.51),
    "ResNet": BambooProfile(8, 10_000, 384, (6100, 3200, 2400, 1600), 20, 1.3),
    "GNMT": BambooProfile(6, 10_000, 288, (3100, 1660, 1185, 950), 16, 0.9),
    "VGG": BambooProfile(6, 5_000, 384, (9300, 4900, 3440, 2750), 16, 2.2),
    "AlexNet": BambooProfile(6, 5_000, 384, (6180, 3100, 2000, 1550), 16, 1.6),
}
"""The published models by name."""


class Economy(NamedTuple):
    """What a training gives and costs.

    Attributes:
        samples_per_s: Its rate.
        dollars_per_h: Its cost.
        value: Rate over cost, samples/s per $/h; of steps, averaged over their time.
    """

    samples_per_s: float
    dollars_per_h: float
    value: float


def on_demand(profile: BambooProfile) -> Economy:
    """The same training on nodes on demand."""
    rate = profile.batch / profile.on_demand_step_s
    dollars_per_h = profile.on_demand_nodes * ON_DEMAND_PRICE
    return Economy(rate, dollars_per_h, rate / dollars_per_h)


def replay_bamboo_alone(
    changes: Sequence[SpotChange], profile: BambooProfile, run_ms: int = RUN_MS
) -> tuple[ReplayResult, Economy]:
    """Replay Bamboo on nodes that come and go, for a time.

    Raises:
        InputError: If the changes cannot follow each other, or if the nodes make more pipelines
            than are profiled.
    """
    check_changes(changes)
    replay = ProfiledBamboo(changes, profile, run_ms)
    replay.run()
    return replay.result(effective_share=EFFECTIVE, redundant_share=REDUNDANT), replay.economy()


class ProfiledBamboo(BambooReplay):
    """Bamboo with steps by pipelines."""

    def __init__(self, changes: Sequence[SpotChange], profile: BambooProfile, end_ms: int) -> None:
        model = BambooModel(profile.batch, profile.rebalance_ms)
        super().__init__(changes, model, end_ms, profile.stages)
        self._step_ms = profile.step_ms

    def look_up_step_ms(self) -> int:
        """Length of a step with the pipelines of the last meeting."""
        if self.pipelines > len(self._step_ms):
            raise InputError(
                f"at {self.now_ms} ms, {self.ready} nodes make {self.pipelines} pipelines; steps "
                f"are profiled for 1 to {len(self._step_ms)}"
            )
        return self._step_ms[self.pipelines - 1]

    def economy(self) -> Economy:
        """What the training gives and costs, up to the end of the last finished step."""
        rate, dollars_per_h = self.ledger.mean_rate(), self.mean_instances() * SPOT_PRICE
        if self.ledger.start_ms is None or not self.ledger.finished:
            return Economy(rate, dollars_per_h, 0.0)
        total = 0.0
        for step, step_rate in zip(self.ledger.finished, self.ledger.rates, strict=True):
            price = self.counts.mean(step.begin_ms, step.end_ms) * SPOT_PRICE
            total += (step.end_ms - step.begin_ms) * step_rate / price
        length_ms = self.ledger.finished[-1].end_ms - self.ledger.start_ms
        return Economy(rate, dollars_per_h, total / length_ms)
