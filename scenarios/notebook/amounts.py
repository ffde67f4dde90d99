"""Plots of an amount for each variant: its energy, and its queue delay by size of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.consumption import Estimate
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.analysis.vocabulary import TIMES, choose_unit, metric_units
from wattkeeper.scenarios.charts.chart import is_spread
from wattkeeper.scenarios.notebook.colours import VariantStyle
from wattkeeper.scenarios.notebook.frame import Frame, literal
from wattkeeper.sim.cluster_results.metrics import JobOutcomes
from wattkeeper.sim.results.statistics import interval
from wattkeeper.traces.describe.waits import SIZE_NAMES, split_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENERGIES: Final = {"cluster_energy_j": "energy of the cluster", "energy_j": "energy of all jobs"}
"""Metrics of energy and their labels; the first one that is known is drawn."""

THICKNESS: Final = 0.7
"""Of a row with a bar, or with a marker for each variant; rows have distance 1."""


def draw_energy(summary: Json, styles: Sequence[VariantStyle], frame: Frame) -> Axes:
    """Draw a bar for each variant; see `StudyPlots.energy`."""
    metrics = {style: summary["variants"][style.name]["metrics"] for style in styles}
    for metric in ENERGIES:
        energies = {
            style: Estimate(of_runs[metric]["mean"], *(of_runs[metric]["ci95"] or ()))
            for style, of_runs in metrics.items()
            if metric in of_runs and of_runs[metric]["mean"] is not None
        }
        if energies:
            return _draw_energies(energies, metric, frame)
    raise InputError("there is nothing to plot: the results have no energy")


def _draw_energies(energies: Mapping[VariantStyle, Estimate], metric: str, frame: Frame) -> Axes:
    unit, size = choose_unit([energy.mean for energy in energies.values()], metric_units(metric))
    with frame.drawn("Energy by variant") as axes:
        for row, (style, energy) in enumerate(energies.items()):
            axes.barh(row, energy.mean / size, THICKNESS, color=style.colour)
            _draw_range(axes, energy, size, row, "black")
        axes.set_xlabel(f"{ENERGIES[metric]}, {unit}")
        _label_rows(axes, [style.name for style in energies])
    return axes


def draw_delay_by_size(
    outcomes: Sequence[tuple[RunColumns, JobOutcomes]], styles: Sequence[VariantStyle], frame: Frame
) -> Axes:
    """Draw a marker for each variant and size class; see `StudyPlots.queue_delay_by_size`."""
    means: dict[str, dict[str, list[float]]] = {name: {} for name in SIZE_NAMES}
    for run, jobs in outcomes:
        first = run.rows["attempt"].to_numpy() == 1
        for _, name, mask in split_sizes(run.rows["gpus"].to_numpy()[first]):
            mean_s = float(jobs.queue_delay_s[mask].mean())
            means[name].setdefault(run.variant, []).append(mean_s)
    by_size = {
        name: {
            variant: Estimate(float(np.mean(own)), *(interval(own) or ()))
            for variant, own in by_variant.items()
        }
        for name, by_variant in means.items()
        if by_variant
    }
    waits = [delay.mean for own in by_size.values() for delay in own.values() if delay.mean > 0]
    if not waits:
        raise InputError("there is nothing to plot: the results have no job that waited")
    unit, size = choose_unit(waits, TIMES)
    log = is_spread(waits)
    with frame.drawn("Queue delay by size of jobs") as axes:
        axes.set_xlabel(f"mean queue delay, {unit}")
        axes.set_xscale("log" if log else "linear")
        for index, style in enumerate(styles):
            shift = THICKNESS * ((index + 0.5) / len(styles) - 0.5)
            own = {
                row + shift: of_size[style.name]
                for row, of_size in enumerate(by_size.values())
                if style.name in of_size
            }
            drawn = {y: delay for y, delay in own.items() if delay.mean > 0 or not log}
            for y in sorted(own.keys() - drawn.keys()):
                axes.text(
                    0.02,
                    y,
                    "0",
                    color=style.colour,
                    va="center",
                    transform=axes.get_yaxis_transform(),
                )
            axes.plot(
                [delay.mean / size for delay in drawn.values()],
                list(drawn),
                style.marker,
                color=style.colour,
                markersize=5,
                zorder=3,
                label=literal(style.name),
            )
            for y, delay in drawn.items():
                _draw_range(axes, delay, size, y, style.colour)
        if not log:
            axes.set_xlim(0)
        for row in range(1, len(by_size)):
            axes.axhline(row - 0.5, color="0.85", linewidth=0.6)
        _label_rows(axes, list(by_size))
    return axes


def _draw_range(axes: Axes, estimate: Estimate, size: float, row: float, colour: str) -> None:
    """Draw the 95 % interval of an amount, if it has a width."""
    if estimate.has_range:
        ends = estimate.low / size, estimate.high / size
        axes.plot(ends, (row, row), color="white", linewidth=3)
        axes.plot(ends, (row, row), color=colour, linewidth=1.2)


def _label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows, the first one on top, and leave the numbers below them room."""
    axes.set_yticks(range(len(labels)), list(map(literal, labels)))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    if axes.get_xscale() == "linear":
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
