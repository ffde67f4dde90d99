"""Plots of energy by variant and of queue delays: their values are those of the tables."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tests.conftest import inside_with
from tests.support.losses import generate_jobs
from wattkeeper import scenarios
from wattkeeper.scenarios.run.run import ScenarioResult
from wattkeeper.traces.describe.waits import SIZES

NAMES = ["fifo", "sjf", "dlas-gpu"]
UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0, "kWh": 3.6e6, "MJ": 1e6}


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> ScenarioResult:
    """Jobs of all sizes under three schedulers."""
    where = tmp_path_factory.mktemp("queue")
    with pytest.MonkeyPatch.context() as patch:
        generate_jobs(inside_with(where / "library", where, patch), 1.2)
        settings = ["workload.trace=jobs", "cluster.gpus=16"]
        return scenarios.load("philly-schedulers", settings).run()


@pytest.fixture(scope="module")
def seeds() -> ScenarioResult:
    """Jobs that wait for one GPU, with several seeds."""
    few = ["workload.recurrences=5", "cluster.gpus=1"]
    return scenarios.load("quickstart", few, seeds=3).run()


def unit(axes: Axes) -> float:
    return UNITS[axes.get_xlabel().rpartition(", ")[2]]


def positions(line: Line2D) -> list[tuple[float, float]]:
    """The points of a line."""
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata(), float)]


def ranges(axes: Axes, colour: str) -> list[tuple[float, float]]:
    """The intervals that are drawn: lines of two points without a label."""
    return [
        (low, high)
        for line in axes.lines
        if str(line.get_label()).startswith("_child") and line.get_color() == colour
        for (low, _), (high, _) in [positions(line)]
    ]


def test_bars_are_energies_of_the_cluster_with_intervals(seeds: ScenarioResult) -> None:
    axes = seeds.plot.energy()
    assert axes.get_xlabel() == "energy of the cluster, kWh"
    widths = [bar.get_width() * unit(axes) for bar in axes.patches]  # type: ignore[attr-defined]
    metrics = [about["metrics"] for about in seeds.summary["variants"].values()]
    expected = [of_runs["cluster_energy_j"] for of_runs in metrics]
    assert widths == pytest.approx([each["mean"] for each in expected])
    drawn = np.array(ranges(axes, "black")) * unit(axes)
    np.testing.assert_allclose(drawn, [each["ci95"] for each in expected])
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == list(seeds.summary["variants"])


def test_without_a_cluster_the_energy_is_that_of_jobs(seeds: ScenarioResult) -> None:
    for about in seeds.summary["variants"].values():
        about["metrics"]["cluster_energy_j"]["mean"] = None
    axes = seeds.plot.energy()
    assert axes.get_xlabel() == "energy of all jobs, MJ"


def test_the_distribution_of_queue_delays_is_that_of_jobs(queue: ScenarioResult) -> None:
    axes = queue.plot.queue_delay()
    assert axes.get_xscale() == "log"
    assert axes.get_legend_handles_labels()[1] == NAMES
    jobs = queue.jobs.query("variant == 'fifo'")
    delays_s = np.sort(jobs["start_time_s"] - jobs["submit_time_s"])
    steps = positions(axes.lines[0])
    assert len(steps) > 50
    for x, share in steps:
        if 0 < share < 1 and x > steps[0][0]:
            below = np.searchsorted(delays_s, x * unit(axes) * (1 + 1e-4), side="right")
            assert below / len(delays_s) == pytest.approx(share, abs=0.01)


def test_waits_by_size_are_means_of_each_class(queue: ScenarioResult) -> None:
    axes = queue.plot.queue_delay_by_size()
    jobs = queue.jobs.query("variant == 'fifo' and attempt == 1")
    size = np.searchsorted([most for most, _ in SIZES], jobs["gpus"])
    waits = (jobs["start_time_s"] - jobs["submit_time_s"]).groupby(size).mean()
    assert len(waits) > 2
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [SIZES[index][1] for index in waits.index]
    (line,) = (line for line in axes.lines if line.get_label() == "fifo")
    drawn = {round(y): x for x, y in positions(line)}
    expected = {row: wait for row, wait in enumerate(waits) if wait > 0}
    assert {row: x * unit(axes) for row, x in drawn.items()} == pytest.approx(expected)
    zeros = [text for text in axes.texts if text.get_text() == "0"]
    assert (axes.get_xscale() == "log") or not zeros


def test_waits_of_several_seeds_have_intervals(seeds: ScenarioResult) -> None:
    axes = seeds.plot.queue_delay_by_size(variants=["default", "zeus"])
    colours = {str(line.get_label()): str(line.get_color()) for line in axes.lines}
    means = seeds.metrics.query("metric == 'queue_delay_s' and by == ''")
    for name in ("default", "zeus"):
        ((low, high),) = ranges(axes, colours[name])
        own = means.query("variant == @name")["value"]
        assert (low + high) / 2 * unit(axes) == pytest.approx(own.mean())
        assert low < high
