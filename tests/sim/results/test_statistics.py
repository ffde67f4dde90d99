"""Intervals, effects and verdicts of few pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from wattkeeper.sim.results.statistics import (
    NOT_COMPARED,
    effect,
    holm,
    interval,
    over_seeds,
    p_value,
    t_quantile,
    versus,
)

sizes = st.integers(2, 12)
numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Values above 0 and their baselines, of as many seeds."""
    size = draw(sizes)
    above = st.lists(st.floats(0.01, 1e6), min_size=size, max_size=size)
    return np.array(draw(above)), np.array(draw(above))


@st.composite
def comparable_pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Pairs whose baselines lie within a factor of 4, so that most have a ratio."""
    size = draw(sizes)
    about = st.lists(st.floats(0.5, 2), min_size=size, max_size=size)
    values, baseline = np.array(draw(about)), np.array(draw(about))
    return values * draw(st.floats(0.01, 2)), baseline


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 30, 999])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_are_those_of_students_distribution(level: float, freedom: int) -> None:
    expected = stats.t.ppf(0.5 + level / 2, freedom)
    assert t_quantile(level, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-9)
    assert t_quantile(level, None) == pytest.approx(stats.norm.ppf(0.5 + level / 2), rel=1e-8)


@given(comparable_pairs())
def test_p_is_that_of_the_paired_t_test(both: tuple[Any, Any]) -> None:
    values, baseline = both
    assume(versus(values, baseline)["ratio"] is not None)
    ratios = values / baseline
    assume(np.ptp(ratios) > 1e-6 * ratios.max())
    expected = stats.ttest_1samp(ratios, 1.0).pvalue
    assert p_value(values, baseline) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_the_step_down_of_bonferroni(p_values: list[float]) -> None:
    """Rejected at each level is what the procedure rejects, written as its author did."""
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[at] * (len(p_values) - rank) > level:
                break
            rejected.add(at)
        assert {at for at, p in enumerate(adjusted) if p <= level} == rejected


@given(st.lists(numbers, min_size=2, max_size=12), numbers, st.floats(0.1, 1e3))
def test_an_interval_moves_and_grows_with_what_it_is_of(
    values: list[float], shift: float, factor: float
) -> None:
    seen = np.array(values)
    found = interval(seen)
    assert found is not None
    size = np.abs(seen).max() + abs(shift) + 1
    for changed, expected in (
        (seen + shift, [found[0] + shift, found[1] + shift]),
        (seen * factor, [found[0] * factor, found[1] * factor]),
        (-seen, [-found[1], -found[0]]),
    ):
        tolerance = 1e-9 * size * max(1, factor)
        assert interval(changed) == pytest.approx(expected, rel=0, abs=tolerance)
    slack = 1e-9 * size
    assert found[0] - slack <= seen.mean() <= found[1] + slack


@given(pairs() | comparable_pairs(), st.floats(1e-3, 1e3))
def test_units_change_neither_ratio_nor_effect_nor_verdict(
    both: tuple[Any, Any], factor: float
) -> None:
    values, baseline = both
    first, again = versus(values, baseline), versus(values * factor, baseline * factor)
    of_means, of_pairs = values.mean() / baseline.mean(), (values / baseline).mean()
    assume(abs(of_pairs - of_means - max(1, of_means)) > 1e-9 * of_pairs)
    assert (first["ratio"] is None) == (again["ratio"] is None)
    if first["ratio"] is None:
        return
    assert again["ratio"] == pytest.approx(first["ratio"], rel=1e-9)
    if first["effect"] is not None and abs(first["effect"]) < 1e6:
        assert again["effect"] == pytest.approx(first["effect"], rel=1e-5, abs=1e-9)
    low, high = first["ci95"]
    if min(abs(low - 1), abs(high - 1)) > 1e-9 * first["ratio"]:
        assert again["verdict"] == first["verdict"]


def test_no_interval_of_a_ratio_begins_below_0() -> None:
    assert versus([1.0, 60.0], [100.0, 100.0])["ci95"][0] == 0
    assert versus([-10.0, 60.0], [100.0, 100.0])["ci95"][0] < 0


def test_a_baseline_near_0_has_no_ratio() -> None:
    """One ratio of 100 would make the mean, 34.6, where the means are 2 apart."""
    about = versus([100.0, 2000.0, 900.0], [1.0, 1000.0, 500.0])
    assert (about["ratio"], about["ci95"], about["verdict"]) == (None, None, "cannot tell")
    assert versus([110.0, 2000.0, 900.0], [100.0, 1000.0, 500.0])["ratio"] == pytest.approx(4.9 / 3)
    assert versus([0.0, 0.0], [1.0, 3.0])["ratio"] == 0
    assert versus([1.0] * 10, [1.0] * 9 + [30.0])["ratio"] == pytest.approx(9.0333 / 10, rel=1e-4)
    assert versus([0.0, 5.3, 0.0], [157.0, 35.0, 217.0])["verdict"] == "lower"


@given(pairs(), st.randoms(use_true_random=False))
def test_only_pairs_matter_to_the_effect(both: tuple[Any, Any], source: Any) -> None:
    values, baseline = both
    order = list(range(len(values)))
    source.shuffle(order)
    first = effect(values, baseline)
    assume(first is not None and abs(first) < 1e6)
    assert first is not None
    assert effect(values[order], baseline[order]) == pytest.approx(first, rel=1e-6, abs=1e-9)
    assert effect(baseline, values) == pytest.approx(-first, rel=1e-9)


@given(pairs())
def test_shared_variation_of_pairs_is_no_noise(both: tuple[Any, Any]) -> None:
    """However seeds differ from each other: 5 % more with every seed is 5 % more."""
    found = versus(both[0] * 1.05, both[0])
    assert found["ratio"] == pytest.approx(1.05)
    assert found["ci95"] == pytest.approx([1.05, 1.05], rel=1e-9)
    assert found["verdict"] == "higher"
    assert versus(both[0] * 0.95, both[0])["verdict"] == "lower"


@pytest.mark.parametrize(
    ("values", "baseline", "verdict"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], "identical"),
        ([1.0, 2.0, 3.0 * (1 + 1e-15)], [1.0, 2.0, 3.0], "identical"),
        ([0.0, 0.0], [0.0, 0.0], "identical"),
        ([5.0], [5.0], "identical"),
        ([1.1, 1.9, 3.0], [1.0, 2.0, 3.0], "cannot tell"),
        ([1.1, 1.9, 3.0, 3.9, 5.1], [1.0, 2.0, 3.0, 4.0, 5.0], "noise"),
        ([2.0, 4.1, 5.9], [1.0, 2.0, 3.0], "higher"),
        ([300.0, 310.0, 290.0], [0.0, 0.0, 0.0], "higher"),
        ([-3.0, -5.1, -2.9], [-1.0, -3.0, -1.0], "lower"),
        ([5.0], [4.0], "one seed"),
        ([math.nan, 1.0], [1.0, 1.0], None),
        ([1.0], [1.0, 1.0], None),
    ],
)
def test_verdicts(values: list[float], baseline: list[float], verdict: str | None) -> None:
    found = versus(values, baseline)
    assert found["verdict"] == verdict
    assert (found == NOT_COMPARED) == (verdict is None)
    assert (found["ratio"] is None) == (verdict is None or min(baseline) <= 0)


def test_an_effect_is_the_mean_difference_over_its_deviation() -> None:
    found = versus([3.0, 5.0, 10.0], [1.0, 2.0, 3.0])
    assert found["effect"] == pytest.approx(4 / math.sqrt(7))
    assert versus([2.0, 3.0], [1.0, 2.0])["effect"] is None
    assert over_seeds([math.nan, 4.0]) == {"mean": 4.0, "std": None, "ci95": None, "n": 1}


COVERAGE = {
    (2, "normal"): (0.93, 0.97),
    (3, "normal"): (0.93, 0.97),
    (5, "normal"): (0.93, 0.97),
    (10, "normal"): (0.93, 0.97),
    (2, "lognormal"): (0.90, 0.97),
    (3, "lognormal"): (0.88, 0.97),
    (5, "lognormal"): (0.89, 0.97),
    (10, "lognormal"): (0.90, 0.97),
}
"""How often 95 % intervals may hold the mean; of skewed values less often, as is known of all."""


@pytest.mark.parametrize(("size", "kind"), COVERAGE)
def test_intervals_hold_the_mean_as_often_as_they_say(size: int, kind: str) -> None:
    """Of values like the metrics of a run; the plain bootstrap holds 67 % with three seeds."""
    rng = np.random.default_rng(size)
    drawn = rng.normal(size=(1500, size))
    truth = 0.0
    if kind == "lognormal":
        drawn, truth = np.exp(0.5 * drawn), math.exp(0.125)
    held = 0
    for values in drawn:
        low, high = interval(values) or (math.nan, math.nan)
        held += low <= truth <= high
    least, most = COVERAGE[size, kind]
    assert least <= held / len(drawn) <= most


@given(st.lists(numbers, min_size=5, max_size=12))
def test_figures_are_exactly_those_of_numpy(values: list[float]) -> None:
    """Whether they are few, and added up here, or not."""
    seen, size = np.array(values), len(values)
    found = over_seeds(values)
    assert (found["mean"], found["std"]) == (seen.mean(), seen.std(ddof=1))
    assume(np.ptp(seen) > 0)
    drawn = seen[np.random.default_rng(0).integers(size, size=(2000, size))].mean(axis=1)
    ends = np.quantile(drawn, (0.025, 0.975))
    wider = math.sqrt(size / (size - 1)) * t_quantile(0.95, size - 1) / t_quantile(0.95, None)
    assert found["ci95"] == [found["mean"] + wider * (end - found["mean"]) for end in ends.tolist()]
