"""What results of a kind of workload show: metrics, what decides, tables, sentences and charts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import Tradeoff
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.document.blocks import Chapter, Paragraph, Table
from wattkeeper.sim.cluster_results.accounting import CARBON, COST, ENERGY

BOUNDS: Final = {"carbon": CARBON, "price": COST, "energy": ENERGY}
"""The metric of a scenario's bound."""


class Presenter(ABC):
    """What the pages, terminals and notebooks show of results of a kind.

    Attributes:
        compares_runs: Whether metrics of whole runs are compared, and what their clusters used.
        no_input: What stands in the place of inputs if there are none.
    """

    compares_runs: ClassVar[bool] = True
    no_input: ClassVar[str] = "none: all trainings were real"

    @abstractmethod
    def metrics(self, summary: Json) -> tuple[str, ...]:
        """The metrics in which variants can differ, in the order of columns."""

    @abstractmethod
    def tradeoff(self, summary: Json) -> Tradeoff:
        """The metrics that policies trade off."""

    @abstractmethod
    def define_metrics(self, manifest: Manifest, summary: Json) -> Iterator[str]:
        """What the metrics mean."""

    def decisive_metric(self, scenario: Json, summary: Json, bill: Bill) -> str:
        """The metric that decides between variants.

        What a bound is computed of (`bound`); the cost of electricity where its price is stated,
        else emissions where these are; else that of the jobs.
        """
        if (bound := BOUNDS.get(scenario.get("bound", ""))) in bill.amounts:
            return str(bound)
        for metric in (COST, CARBON):
            if any(any(by_seed.values()) for by_seed in bill.amounts.get(metric, {}).values()):
                return metric
        return self.metric_of_jobs(scenario, summary, bill)

    @abstractmethod
    def metric_of_jobs(self, scenario: Json, summary: Json, bill: Bill) -> str:
        """The metric that decides where neither a bound nor rates of electricity are stated."""

    def has_single_jobs(self, scenario: Json) -> bool:
        """Whether waits and times of jobs, one by one, depend on the variant."""
        return True

    def warn(self, summary: Json) -> Iterator[str]:
        """Warnings that belong before the figures."""
        yield from ()

    def tell(self, study: Study) -> Iterator[Paragraph]:
        """Sentences that take the place of those on each variant; none: these are told."""
        yield from ()

    def list_variants(self, summary: Json) -> Iterator[Table]:
        """Tables that take the place of that of the metrics of each variant."""
        yield from ()

    def chapters(self, study: Study) -> Iterator[Chapter]:
        """Further chapters."""
        yield from ()

    def describe_losses(self, scenario: Json, summary: Json) -> Iterator[str]:
        """What losses of nodes cost, beyond what they cost ordinary jobs."""
        yield from ()

    def draw(self, study: Study, variants: list[str]) -> Iterator[Chart]:
        """Further charts."""
        yield from ()
