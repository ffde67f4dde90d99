"""The results of one run, and what runs of its kind leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa


class ResultKind(NamedTuple):
    """What runs of one engine leave.

    Attributes:
        tables: Schemas by name, in the order in which tables are digested.
        sometimes: The tables that only some scenarios have.
        costs: Metrics that are comparable only under the same eta.
    """

    tables: Mapping[str, pa.Schema]
    sometimes: frozenset[str] = frozenset()
    costs: frozenset[str] = frozenset()

    @property
    def optional_files(self) -> set[str]:
        """The files of `files` that only some scenarios have."""
        return {f"{name}.parquet" for name in self.sometimes}

    @property
    def files(self) -> set[str]:
        """The files of a run whose digests are in `SHA256SUMS`."""
        tables = {f"{name}.parquet" for name in self.tables}
        return tables | {"metrics.parquet", "summary.json", "manifest.json"}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of one variant with one seed.

    Attributes:
        kind: What all runs of the engine leave.
        variant: Name of the variant.
        seed: Seed of the run.
        tables: Tables by name, in the schemas of the kind. Long ones of large runs are each a
            `StoredTable`, which is read by columns like the others.
        metrics: Metrics of the whole run, by name.
        by: Metrics of its parts, as `by["workload"]["cifar100"]`.
        events: Number of events that the simulator handled.
        digest: SHA-256 of the tables.
    """

    kind: ClassVar[ResultKind]
    variant: str
    seed: int
    tables: dict[str, pa.Table]
    metrics: dict[str, float]
    by: dict[str, dict[str, dict[str, float]]]
    events: int
    digest: str
