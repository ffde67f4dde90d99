"""Plot that compares a trace with a sample from its fit."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.fits import DAYS, HOUR_S, HOURS
from wattkeeper.traces.generate.compare_fit import (
    JobColumns,
    columns,
    compare,
    daily_rates,
    hourly_rates,
)
from wattkeeper.traces.generate.fit import start_of_week_s
from wattkeeper.traces.trace import Trace

COLOURS = ("#20639b", "#e07b39")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NAMES = ("trace", "sample of its fit")


def plot_comparison(real: Trace, sampled: Trace, path: Path) -> None:
    """Plot run times, gaps, demands, rhythms and arrivals of both traces into a PNG.

    Raises:
        EnvironmentLacks: If matplotlib is not installed or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise EnvironmentLacks(
            f"{path} is not drawn, the numbers are written: plots need matplotlib; install it: "
            "pip install 'wattkeeper[plots]'"
        ) from error

    figure = Figure(figsize=(13, 7.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    sides = (columns(real), columns(sampled))
    for n, (side, colour, name) in enumerate(zip(sides, COLOURS, NAMES, strict=True)):
        style = {"color": colour, "label": f"{name} ({len(side.submit_s):,} jobs)"}
        _steps(axes[0, 0], side.duration_s, style)
        _steps(axes[0, 1], np.maximum(np.diff(side.submit_s), 0.5), style)
        _rhythm(axes[1, 0], hourly_rates(side.submit_s), style)
        _rhythm(axes[1, 1], daily_rates(side.submit_s), style)
        _arrivals(axes[1, 2], side, style)
        _shares(axes[0, 2], sides, n, style)
    for axis, (title, unit, height) in zip(axes.flat, _TEXTS, strict=True):
        axis.set(title=title, xlabel=unit, ylabel=height)
        axis.grid(alpha=0.3)
    for axis in axes[1, :2]:
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
    axes[1, 0].set_xticks(range(0, HOURS + 1, 4))
    dated = start_of_week_s(real) is not None
    axes[1, 1].set_xticks(np.arange(DAYS) + 0.5, WEEKDAYS if dated else range(DAYS))
    if not dated:
        axes[1, 1].set(xlabel="day, from the first of the trace")
    axes[0, 0].legend(fontsize="small")
    title = f"{real.name}: {real.source}"[:120]
    figure.suptitle(title.replace("$", r"\$"))  # no TeX
    try:
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror or error}") from error


def save_comparison(real: Trace, sampled: Trace, folder: Path) -> None:
    """Write ``comparison.json`` and ``comparison.png`` into a folder; create it if needed.

    Raises:
        EnvironmentLacks: If a file cannot be written, or, with the numbers written and only the
            picture missing, if matplotlib is not installed.
    """
    text = json.dumps(compare(real, sampled), indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comparison.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {folder}: {error.strerror or error}") from error
    plot_comparison(real, sampled, folder / "comparison.png")


_TEXTS = (
    ("Run time", "s", "share of jobs at most"),
    ("Time between submissions (0 drawn as 0.5)", "s", "share at most"),
    ("GPU demand", "GPUs", "share of jobs"),
    ("Hour of day", "hour", "rate over the mean"),
    ("Day of week", "", "rate over the mean"),
    ("Submissions an hour", "jobs in the hour", "share of hours with more"),
)


def _steps(axis: Any, values: Floats, style: dict[str, str]) -> None:
    """An empirical distribution function on a logarithmic axis."""
    ordered = np.sort(values[~np.isnan(values)])
    index = np.unique(np.linspace(0, len(ordered) - 1, 2000).astype(np.int64))
    axis.plot(ordered[index], (index + 1) / len(ordered), **style)
    axis.set_xscale("log")


def _rhythm(axis: Any, rates: Floats | None, style: dict[str, str]) -> None:
    """Plot rates of the parts of a cycle as steps; nothing if there are none."""
    if rates is not None:
        axis.stairs(rates, np.arange(len(rates) + 1), baseline=None, **style)
        axis.set_xlim(0, len(rates))


def _arrivals(axis: Any, side: JobColumns, style: dict[str, str]) -> None:
    counts = np.sort(np.bincount(((side.submit_s - side.submit_s[0]) // HOUR_S).astype(np.int64)))
    above = 1 - np.arange(1, len(counts) + 1) / len(counts)
    axis.plot(np.maximum(counts, 0.5), np.maximum(above, 0.5 / len(counts)), **style)
    axis.set_xscale("log")
    axis.set_yscale("log")


def _shares(axis: Any, sides: tuple[JobColumns, ...], n: int, style: dict[str, str]) -> None:
    demands = np.unique(np.concatenate([side.gpus for side in sides]))
    shares = [float(np.mean(sides[n].gpus == gpus)) for gpus in demands]
    axis.bar(np.arange(len(demands)) + 0.4 * n - 0.2, shares, 0.4, **style)
    axis.set_yscale("log")
    if len(demands) <= 20:
        axis.set_xticks(range(len(demands)), [f"{gpus:g}" for gpus in demands])
