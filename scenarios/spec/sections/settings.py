"""Small sections of scenario files: objective, latencies, accounting window, zoo."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from wattkeeper.scenarios.spec.sections.section import LARGEST, Section
from wattkeeper.scenarios.spec.sections.values import Seconds


class ObjectiveSection(Section):
    """Cost of a job."""

    eta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """1 counts energy alone, 0 counts time alone."""


class LeagueSection(Section):
    """A comparison of bandits by their regret on each pair of workload and GPU type."""

    against: str
    """The variant whose regret counts as 1."""
    oracle: str
    """The variant of least expected cost: what others cost beyond it is their regret."""


class LatenciesSection(Section):
    """Times for which a job with a profile holds its GPUs idle, other than training.

    Those of a preemption are in `cluster.preemption`.
    """

    start_s: Seconds = 0.0
    """From the start of an attempt to its first step, s."""
    stop_s: Seconds = 0.0
    """From its last step until its GPUs are free, s."""
    report_s: Seconds = 0.0
    """To report an epoch, s."""
    settle_s: Seconds = 0.0
    """Until a power limit is in force, each time that one is set, s."""


class AccountingSection(Section):
    """Window over which the energy of the cluster is counted, the same for all variants."""

    from_s: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    """Its begin, s since the start of the run; the first submission over all variants if absent."""
    until_s: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    """Its end, s since the start of the run; the last end over all variants if absent."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if self.from_s is not None and self.until_s is not None and self.from_s >= self.until_s:
            raise ValueError(f"until_s: {self.until_s:g} s is not after from_s, {self.from_s:g} s")
        return self


class ZooSection(Section):
    """A store of trained models that later ones may start from; empty when the run begins."""

    capacity_gb: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Capacity, 10^9 bytes at 4 bytes per parameter; no bound if absent."""
    accuracy: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | None = None
    """Accuracy from scratch of models that have none in the trace; modelled."""
