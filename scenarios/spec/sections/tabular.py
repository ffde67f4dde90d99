"""The section of scenario files on searches over recorded tables."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from wattkeeper.scenarios.spec.sections.search import (
    GreedyOracle,
    RandomDraws,
    RegularizedEvolution,
)
from wattkeeper.scenarios.spec.sections.section import WorkloadSection

TabularStrategy = Annotated[
    RandomDraws | RegularizedEvolution | GreedyOracle, Field(discriminator="kind")
]


class TabularWorkload(WorkloadSection):
    """A search for architectures whose networks were trained before: recordings are replayed."""

    trace_keys: ClassVar[tuple[str, ...]] = ("table",)
    has_models: ClassVar[bool] = True
    kind: Literal["tabular"]
    table: str
    """The networks and their recorded trainings: a trace of kind `networks` by name or path.
    `digits-space` comes with wattkeeper."""
    task: str | None = None
    """Task and data set, where the table has several."""
    models: Annotated[int, Field(gt=0, le=10_000)]
    """Number of trainings."""
    strategy: TabularStrategy
    """How the next network is proposed, from the validation accuracies of those before. The space
    is that of the table."""

    @model_validator(mode="after")
    def _space_is_that_of_the_table(self) -> Self:
        if "space" in self.strategy.model_fields_set:
            raise ValueError("strategy.space: leave it out: the table has its own")
        return self
