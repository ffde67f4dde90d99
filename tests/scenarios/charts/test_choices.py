"""The chart of choices draws the power limits at which attempts ran, and no others."""

from __future__ import annotations

import math

import pytest

from wattkeeper import scenarios
from wattkeeper.scenarios.document.study import draw_study


def test_limits_of_attempts_whose_knobs_changed_are_left_out_and_counted() -> None:
    study = scenarios.load("carbon-limits", ["workload.recurrences=12"]).run()
    chart = next(chart for chart in draw_study(study) if chart.id == "choices")
    retuned = study.jobs["retunes"].fillna(0) > 0
    assert 0 < retuned.sum() < len(retuned)
    assert f"power limits of {retuned.sum()} attempts whose knobs changed after" in chart.caption
    variants = list(study.summary["variants"])
    for workload, panels in chart.data["views"].items():
        sizes, limits = panels
        assert len(sizes["lines"]) == len(variants)
        for line in limits["lines"]:
            rows = study.jobs["workload"].eq(workload) & study.jobs["variant"].eq(
                variants[line["v"]]
            )
            own = study.jobs[rows].sort_values("recurrence")
            steady = own["retunes"].fillna(0) == 0
            drawn = [math.nan if value is None else value for value in line["y"]]
            expected = own["power_limit_w"].where(steady).tolist()
            assert drawn == pytest.approx(expected, nan_ok=True)
