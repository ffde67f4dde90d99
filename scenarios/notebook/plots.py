"""Plots of results: the charts of their page, on axes of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import Unpack

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
from wattkeeper.scenarios.charts.sweep_charts import draw_sweep_tradeoff
from wattkeeper.scenarios.document.study import draw_front
from wattkeeper.scenarios.notebook.amounts import draw_delay_by_size, draw_energy
from wattkeeper.scenarios.notebook.colours import VariantStyle
from wattkeeper.scenarios.notebook.drawing import draw_chart
from wattkeeper.scenarios.notebook.frame import Frame, FrameOptions
from wattkeeper.scenarios.notebook.gantt import draw_gantt
from wattkeeper.scenarios.notebook.regret import select_workload
from wattkeeper.scenarios.notebook.selection import select_study, select_styles, select_summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class StudyPlots(NamedTuple):
    """Plots of a study; `docs/notebooks.md` says what each shows.

    Each returns its axes. `variants` are the names of those that are drawn, in this order; the
    other options are those of `wattkeeper.scenarios.notebook.frame.Frame`.

    Raises:
        EnvironmentLacks: If matplotlib is not installed.
        InputError: If the study has nothing to draw, or an option is wrong.
    """

    study: Study

    def front(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Energy against time, or goodput of elastic jobs, a point a variant, with the front.

        Markers in the same place are rings around each other.
        """
        study, styles = self._select(variants)
        chart = _first(draw_front(study, _names(styles)), "energy of jobs")
        return draw_chart(chart, styles, chart.title, Frame(**options))

    def energy(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Energy of the cluster, or of all jobs where that is not known, a bar a variant."""
        study, styles = self._select(variants)
        return draw_energy(study.summary, styles, Frame(**options))

    def power(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Power of the cluster over time, of the first seed."""
        study, styles = self._select(variants)
        charts = draw_over_time(study, _names(styles), ["power_w"])
        title = f"Power over time{_name_seed(study.manifest)}"
        return draw_chart(_first(charts, "power over time"), styles, title, Frame(**options))

    def regret(
        self,
        workload: str | None = None,
        *,
        variants: Sequence[str] | None = None,
        **options: Unpack[FrameOptions],
    ) -> Axes:
        """Regret summed up over recurrences; cost, where no best configuration is known.

        Of one workload, or of all. `DisplayedStudy.regret` has the values.
        """
        study, styles = self._select(variants)
        outcomes = read_outcomes(study)
        if workload is not None:
            outcomes = select_workload(outcomes, workload)
        recurs = any((jobs.recurrence > 1).any() for _, jobs in outcomes)
        charts = draw_regret(outcomes, _names(styles)) if recurs else iter(())
        chart = _first(charts, "cost of jobs that recur")
        title = chart.title if workload is None else f"{chart.title}, {workload}"
        return draw_chart(chart, styles, title, Frame(**options))

    def completion(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """The distribution of job completion times, of all seeds."""
        return self._distribution("jct", "job that ended", variants, Frame(**options))

    def queue_delay(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """The distribution of queue delays of jobs, of all seeds."""
        return self._distribution("delay", "job that waited", variants, Frame(**options))

    def queue_delay_by_size(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Mean queue delay of jobs by their number of GPUs, a marker a variant."""
        study, styles = self._select(variants)
        return draw_delay_by_size(read_outcomes(study), styles, Frame(**options))

    def gantt(
        self, variant: str | None = None, seed: int | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Which job held which GPU, of one run: the first one of this variant and seed.

        Of a large run, some of its nodes are drawn, and the label of the axis says so.
        """
        options.setdefault("legend", "outside")
        return draw_gantt(self.study, variant, seed, Frame(**options))

    def _select(self, variants: Sequence[str] | None) -> tuple[Study, list[VariantStyle]]:
        styles = select_styles(list(self.study.summary["variants"]), variants)
        return select_study(self.study, styles), styles

    def _distribution(
        self, key: str, what: str, variants: Sequence[str] | None, frame: Frame
    ) -> Axes:
        study, styles = self._select(variants)
        charts = draw_distributions(read_outcomes(study), _names(styles))
        chart = _first((chart for chart in charts if chart.id == key), what)
        return draw_chart(chart, styles, chart.title, frame)


class SweepPlots(NamedTuple):
    """Plots of a sweep; see `StudyPlots`."""

    about: Json
    rows: Sequence[PointRow]

    def front(
        self, *, variants: Sequence[str] | None = None, **options: Unpack[FrameOptions]
    ) -> Axes:
        """Energy against time, each variant at each point, with the Pareto front."""
        styles = select_styles(all_variants(self.rows), variants)
        names = _names(styles)
        rows = [row._replace(summary=select_summary(row.summary, names)) for row in self.rows]
        charts = draw_sweep_tradeoff(self.about, rows, names) if rows else iter(())
        chart = _first(charts, "energy of jobs")
        return draw_chart(chart, styles, chart.title, Frame(**options))


def _names(styles: Sequence[VariantStyle]) -> list[str]:
    return [style.name for style in styles]


def _first(charts: Iterator[Chart], what: str) -> Chart:
    for chart in charts:
        return chart
    raise InputError(f"there is nothing to plot: the results have no {what}")


def _name_seed(manifest: Manifest) -> str:
    seeds = manifest["seeds"]
    return f", seed {seeds[0]}" if len(seeds) > 1 else ""
