"""What holds throughout a run: its policies, and what the world enforces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import Point, PolicyConfig


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The configs of a run's policies, one a decision point."""

    configure: PolicyConfig
    tune: PolicyConfig
    select: PolicyConfig
    place: PolicyConfig
    replan: PolicyConfig | None = None
    """None where there are no elastic jobs."""
    retain: PolicyConfig | None = None
    """None where there is no zoo."""

    @property
    def by_point(self) -> dict[Point, PolicyConfig]:
        """The config of each decision point at which something is decided."""
        configs = {name: getattr(self, name) for name in self.__slots__}
        return {point: config for point, config in configs.items() if config is not None}


class RunRules(NamedTuple):
    """What the world itself enforces.

    Attributes:
        objective: The cost of a job.
        max_attempts: A job is given up after so many failed attempts.
        start_on_submit: A job that does not start when it is submitted is an error.
        holds_pauses: Whether a job that `Tune` pauses keeps its GPUs, which draw idle power then.
    """

    objective: Objective
    max_attempts: int = 20
    start_on_submit: bool = False
    holds_pauses: bool = False
