"""Plots of results: the charts of their page, on axes of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.points import PointRow, all_variants
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.charts.chart import Chart
from wattkeeper.scenarios.charts.columns import read_outcomes
from wattkeeper.scenarios.charts.distributions import draw_distributions
from wattkeeper.scenarios.charts.learning import draw_regret
from wattkeeper.scenarios.charts.over_time import draw_over_time
from wattkeeper.scenarios.charts.pareto import draw_tradeoff
from wattkeeper.scenarios.charts.sweep_charts import draw_sweep_tradeoff
from wattkeeper.scenarios.notebook.drawing import draw_chart
from wattkeeper.scenarios.notebook.gantt import draw_gantt
from wattkeeper.scenarios.notebook.regret import select_workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class StudyPlots(NamedTuple):
    """Plots of a study; `docs/report.md` says what each shows, and how it is reduced.

    Each draws on `ax`, or in a new figure, and returns the axes.

    Raises:
        EnvironmentLacks: If matplotlib is not installed.
        InputError: If the study has nothing to draw, or `ax` is no axes.
    """

    study: Study

    @property
    def _variants(self) -> list[str]:
        return list(self.study.summary["variants"])

    def front(self, ax: Axes | None = None) -> Axes:
        """Energy against time, or goodput of elastic jobs, a point a variant, with the front."""
        chart = _first(draw_tradeoff(self.study, self._variants), "energy of jobs")
        return draw_chart(chart, self._variants, chart.title, ax)

    def power(self, ax: Axes | None = None) -> Axes:
        """Power of the cluster over time, of the first seed."""
        charts = draw_over_time(self.study, self._variants, ["power_w"])
        title = f"Power over time{_name_seed(self.study.manifest)}"
        return draw_chart(_first(charts, "power over time"), self._variants, title, ax)

    def regret(self, workload: str | None = None, ax: Axes | None = None) -> Axes:
        """Regret summed up over recurrences; cost, where no best configuration is known.

        Of one workload, or of all. `DisplayedStudy.regret` has the values.
        """
        outcomes = read_outcomes(self.study)
        if workload is not None:
            outcomes = select_workload(outcomes, workload)
        recurs = any((jobs.recurrence > 1).any() for _, jobs in outcomes)
        charts = draw_regret(outcomes, self._variants) if recurs else iter(())
        chart = _first(charts, "cost of jobs that recur")
        title = chart.title if workload is None else f"{chart.title}, {workload}"
        return draw_chart(chart, self._variants, title, ax)

    def completion(self, ax: Axes | None = None) -> Axes:
        """The distribution of job completion times, of all seeds."""
        charts = draw_distributions(read_outcomes(self.study), self._variants)
        chart = _first((chart for chart in charts if chart.id == "jct"), "job that ended")
        return draw_chart(chart, self._variants, chart.title, ax)

    def gantt(
        self, variant: str | None = None, seed: int | None = None, ax: Axes | None = None
    ) -> Axes:
        """Which job held which GPU, of one run: the first one of this variant and seed."""
        return draw_gantt(self.study, variant, seed, ax)


class SweepPlots(NamedTuple):
    """Plots of a sweep; see `StudyPlots`."""

    about: Json
    rows: Sequence[PointRow]

    def front(self, ax: Axes | None = None) -> Axes:
        """Energy against time, each variant at each point, with the Pareto front."""
        variants = all_variants(self.rows)
        charts = draw_sweep_tradeoff(self.about, self.rows, variants) if self.rows else iter(())
        chart = _first(charts, "energy of jobs")
        return draw_chart(chart, variants, chart.title, ax)


def _first(charts: Iterator[Chart], what: str) -> Chart:
    for chart in charts:
        return chart
    raise InputError(f"there is nothing to plot: the results have no {what}")


def _name_seed(manifest: Manifest) -> str:
    seeds = manifest["seeds"]
    return f", seed {seeds[0]}" if len(seeds) > 1 else ""
