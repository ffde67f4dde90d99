"""Plots of jobs on GPUs: bars cover the time that jobs held them; of many, some nodes are drawn."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from tests.support.messages import assert_states
from wattkeeper import scenarios
from wattkeeper.scenarios.notebook import gantt
from wattkeeper.scenarios.notebook.colours import variant_colours
from wattkeeper.scenarios.run.run import ScenarioResult

Span = tuple[float, float]
FEW = ["workload.recurrences=6", "workload.workloads=[image,language]"]


@pytest.fixture(scope="module")
def done() -> ScenarioResult:
    return scenarios.load("quickstart", FEW, seeds=2).run()


def spans_by_lane(axes: Axes) -> dict[int, list[Span]]:
    """Begin and end of the bars in each row, s."""
    unit = re.search(r", (\w+)", axes.get_xlabel())
    assert unit is not None
    size = {"h": 3600, "min": 60, "days": 86400}[unit[1]]
    by_lane: dict[int, list[Span]] = {}
    for bars in axes.collections:
        for path in bars.get_paths():
            box = np.array(path.vertices)
            span = round(size * box[:, 0].min(), 3), round(size * box[:, 0].max(), 3)
            by_lane.setdefault(round(float(box[:, 1].min() + box[:, 1].max()) / 2), []).append(span)
    return {lane: sorted(spans) for lane, spans in by_lane.items()}


def test_bars_cover_the_time_that_jobs_held_gpus(done: ScenarioResult) -> None:
    for seed in (1, 2):
        axes = done.plot.gantt("zeus", seed)
        assert_states(axes.get_title(), "zeus", f"seed {seed}")
        by_lane = spans_by_lane(axes)
        drawn_s = sum(end - begin for spans in by_lane.values() for begin, end in spans)
        jobs = done.jobs.query("variant == 'zeus' and seed == @seed")
        held_s = ((jobs["finish_time_s"] - jobs["start_time_s"]) * jobs["gpus"]).sum()
        assert drawn_s == pytest.approx(held_s, rel=1e-5)
        for spans in by_lane.values():
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert "sample" not in axes.get_ylabel()
    colours = {to_hex(np.asarray(bars.get_facecolor())[0]) for bars in axes.collections}
    assert colours <= set(variant_colours())
    assert axes.get_legend_handles_labels()[1] == ["image", "language"]


def test_of_many_bars_some_nodes_are_drawn_and_said(
    done: ScenarioResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = done.plot.gantt("zeus", 1)
    everywhere = spans_by_lane(whole)
    sizes = {lane: len(spans) for lane, spans in everywhere.items()}
    assert len(sizes) == 2
    monkeypatch.setattr(gantt, "MOST_BARS", sum(sizes.values()) - 1)
    some = done.plot.gantt("zeus", 1, title=False)
    assert spans_by_lane(some) == {0: everywhere[0]}
    assert some.get_ylabel() == "a sample: 1 of 2 nodes"
    assert some.get_xlabel() == whole.get_xlabel()
    assert some.get_xlim() == whole.get_xlim()
    monkeypatch.setattr(gantt, "MOST_BARS", 3)
    begin = done.plot.gantt("zeus", 1)
    (drawn,) = spans_by_lane(begin).values()
    assert len(drawn) == 3
    assert drawn[:2] == everywhere[0][:2]
    assert "(the run goes on)" in begin.get_xlabel()
    assert drawn[2][1] == everywhere[0][3][0]
