"""Base of the sections of scenario files."""

from typing import ClassVar

from pydantic import ConfigDict

from wattkeeper.policies.described import Described

LARGEST = 1e15
"""Largest number in a scenario: sums and products of seconds and watts stay finite."""


class Section(Described):
    """Base of all sections of a scenario: immutable, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WorkloadSection(Section):
    """Base of the sections on a workload, which say what a scenario of their kind may state."""

    overrides: ClassVar[frozenset[str]] = frozenset()
    """Keys that a variant may override."""
    trace_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that name a trace."""
    varies_clusters: ClassVar[bool] = True
    """Whether variants may run on clusters of their own."""
    is_log: ClassVar[bool] = False
    """Whether its jobs are those of a log, with recorded durations and partitions."""
    has_bound: ClassVar[bool] = False
    """Whether there is a bound for jobs with deadlines."""
    has_league: ClassVar[bool] = False
    """Whether its variants can be compared in a league."""
    replans: ClassVar[bool] = False
    """Whether its jobs take other shapes, as `Replan` decides."""

    has_models: ClassVar[bool] = False
    """Whether it is known which models its jobs train, as a zoo needs."""

    @property
    def is_profiled(self) -> bool:
        """Whether it names profiles that jobs are replayed from."""
        return "profiles" in self.trace_keys and getattr(self, "profiles", None) is not None

    @property
    def needs_zoo(self) -> bool:
        """Whether it names models, which nothing but a zoo uses."""
        return False
