"""What surrounds plots: size, title, legend, and the fonts of files, whoever saves them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from wattkeeper import scenarios
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.run.run import ScenarioResult

FEW = ["workload.recurrences=6", "workload.workloads=[image,language]"]
NAMES = ("front", "energy", "power", "regret", "completion", "gantt")
COLUMN = (3.3, 2.5)
"""Size of a figure in a column of a paper, inches."""


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    return scenarios.load("quickstart", FEW, seeds=2).run()


def saved(figure: Any, form: str = "pdf") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=form)
    return file.getvalue()


def root(axes: Axes) -> Any:
    return axes.figure.canvas.figure


@pytest.mark.parametrize("name", NAMES)
def test_files_have_truetype_fonts(name: str, done: ScenarioResult) -> None:
    file = saved(root(getattr(done.plot, name)(size=COLUMN)))
    assert b"/FontFile2" in file
    assert b"/Type3" not in file


def test_fonts_are_embedded_whoever_saves_the_figure(done: ScenarioResult) -> None:
    before = dict(matplotlib.rcParams)
    figure = root(done.plot.energy())
    for each in (figure, pickle.loads(pickle.dumps(figure)), pyplot):
        assert b"/Type3" not in saved(each)
    assert b"FontType 42" in saved(figure, "eps")
    assert b"<text" in saved(figure, "svg")
    _, given = pyplot.subplots(1, 2)
    done.plot.energy(ax=given[0])
    done.plot.energy(ax=given[1])
    assert b"/Type3" not in saved(root(given[0]))
    assert dict(matplotlib.rcParams) == before
    plain, axes = pyplot.subplots()
    axes.set_xlabel("time")
    assert b"/Type3" in saved(plain)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_fits_a_column(name: str, done: ScenarioResult) -> None:
    for legend in ("inside", "outside", "none"):
        axes = getattr(done.plot, name)(size=COLUMN, title=False, legend=legend)
        figure = root(axes)
        assert tuple(figure.get_size_inches()) == COLUMN
        assert axes.get_title() == ""
        figure.canvas.draw()
        width, height = figure.bbox.size
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
        sizes = {text.get_fontsize() for text in (axes.xaxis.label, *axes.get_xticklabels())}
        assert sizes == {8.0}
        found = axes.get_legend()
        assert (found is None) == (legend == "none" or name == "energy")
        if found is not None:
            below = found.get_window_extent().y1 <= axes.get_window_extent().y0
            assert below == (legend == "outside")


def test_the_legend_of_bars_stands_below_by_default(done: ScenarioResult) -> None:
    axes = done.plot.gantt()
    root(axes).canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y1 <= axes.get_window_extent().y0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"legend": "left"}, "legend: found 'left'; must be one of inside, outside, none"),
        ({"size": (3.3, 0)}, r"size: found \(3.3, 0\); must be width and height"),
        ({"size": 3.3}, "size: found 3.3; "),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, Any], message: str, done: ScenarioResult
) -> None:
    with pytest.raises(InputError, match=message):
        done.plot.front(**options)
    assert not pyplot.get_fignums()
    with pytest.raises(InputError, match="size: is that of a new figure"):
        done.plot.front(ax=pyplot.subplots()[1], size=COLUMN)
