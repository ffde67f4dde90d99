"""The integral of a series, and what energy costs under it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.charges import cost_of_steps
from tests.support.messages import assert_states
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.electricity.charges import charge_intervals, clock
from wattkeeper.traces.electricity.series import PERIODS_S, Repeat, Series, format_time

ORIGIN = 1_700_000_000.0
DAY = 86400.0


def make(lengths: list[float], values: list[float], repeat: Repeat | None = None) -> Series:
    edges = ORIGIN + np.concatenate([[0.0], np.cumsum(lengths)])
    return Series(edges[:-1], float(edges[-1]), np.array(values), "EUR/kWh", repeat=repeat)


def sum_slots(series: Series, begin: float, end: float) -> float:
    """The integral, slot by slot and lap by lap; times are seconds since `ORIGIN`."""
    edges = np.append(series.start_s, series.end_s) - ORIGIN
    total = 0.0
    for start, stop, value in zip(edges, edges[1:], series.value, strict=False):
        total += value * max(0.0, min(end, stop) - max(begin, start))
    if series.repeat is None:
        return total
    period = PERIODS_S[series.repeat]
    if begin < 0:  # the first period stands before the start
        cut = min(end, 0.0)
        lap = np.floor(begin / period)
        split = min(cut, (lap + 1) * period)
        first = Series(series.start_s, series.end_s, series.value, "")
        total += sum_slots(first, begin - lap * period, split - lap * period)
        if split < cut:
            total += sum_slots(series, split, cut)
    if end > edges[-1]:
        cut = max(begin, edges[-1])
        lap = np.ceil((end - edges[-1]) / period)
        split = max(cut, edges[-1] + (lap - 1) * period)
        last = Series(series.start_s, series.end_s, series.value, "")
        total += sum_slots(last, split - lap * period, end - lap * period)
        if split > cut:
            total += sum_slots(series, cut, split)
    return total


@st.composite
def repeating(draw: st.DrawFn) -> Series:
    count = draw(st.integers(1, 12))
    even = draw(st.booleans())
    length = st.floats(1.0, 2 * DAY)
    lengths = [draw(length)] * count if even else [draw(length) for _ in range(count)]
    values = [draw(st.floats(-1e4, 1e4)) for _ in range(count)]
    lengths[-1] += max(0.0, DAY - sum(lengths))
    return make(lengths, values, draw(st.sampled_from([None, "day"])))


@settings(deadline=None)
@given(repeating(), st.lists(st.floats(-0.5, 1.5), min_size=3, max_size=3))
def test_the_integral_equals_the_sum_of_slots_and_is_additive(
    series: Series, places: list[float]
) -> None:
    length = series.end_s - ORIGIN
    reach = 1.0 if series.repeat is None else 6.0
    a, b, c = sorted(min(max(reach * x, 0.0), reach) * length for x in places)
    if series.repeat:
        a, b, c = a - 2 * length, b - 2 * length, c - 2 * length
    size = float(np.abs(series.value).max() + 1) * (c - a + 1)
    whole, left, right = series.integral(np.array([a, a, b]), np.array([c, b, c]), ORIGIN)
    assert whole == pytest.approx(left + right, abs=1e-9 * size)
    assert whole == pytest.approx(sum_slots(series, a, c), abs=1e-8 * size)


def test_a_constant_series_costs_exactly_what_its_value_does() -> None:
    series = make([900.0] * 96, [0.3] * 96, "day")
    begin = np.array([0.1, 1e6 + 1 / 3, -1e7])
    end = begin + np.array([1 / 7, 86400.0, 12345.6789])
    energy = np.array([1.0, 3.6e6, 7e9])
    assert series.integral(begin, end, ORIGIN).tolist() == (0.3 * (end - begin)).tolist()
    by_series = charge_intervals(begin, end, energy, series, ORIGIN)
    assert by_series == pytest.approx(charge_intervals(begin, end, energy, 0.3), rel=1e-15)


@pytest.mark.parametrize("repeat", ["day", "week", "year"])
def test_a_series_repeats_its_nearest_period(repeat: Repeat) -> None:
    days = 2 * PERIODS_S[repeat] / DAY
    values = np.arange(days * 24) % 7
    series = make([3600.0] * len(values), values.tolist(), repeat)
    period, half = PERIODS_S[repeat], 1800.0
    length = series.end_s - ORIGIN
    for hour in (0, 5, 23):
        before, after = -period + 3600 * hour + half, length + 3600 * hour + half
        assert series.at(before, ORIGIN) == values[hour]
        assert series.at(after, ORIGIN) == values[-int(period / 3600) + hour]
        assert series.at(after + 3 * period, ORIGIN) == values[-int(period / 3600) + hour]
    notes = series.describe_use(ORIGIN + length - DAY, ORIGIN + length + DAY)
    assert_states(notes[-1], "50 %", repeat, format_time(series.end_s))
    assert series.describe_use(ORIGIN, ORIGIN + length) == ()


def test_times_outside_are_refused() -> None:
    series = make([3600.0] * 24, [1.0] * 24)
    for begin, end in ((-1.0, 5.0), (5.0, DAY + 1), (0.0, 1e15)):
        with pytest.raises(TraceError) as caught:
            series.integral(begin, end, ORIGIN)
        assert_states(str(caught.value), "2023-11-14 22:13:20Z", "2023-11-15 22:13:20Z", "repeat")
    with pytest.raises(TraceError, match="repeat: week needs 7"):
        make([3600.0] * 24, [1.0] * 24, "week")


@settings(deadline=None)
@given(
    repeating(),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e6)), min_size=1, max_size=20),
    st.floats(0, 1),
)
def test_power_costs_what_its_pieces_cost(
    series: Series, points: list[tuple[float, float]], middle: float
) -> None:
    length = series.end_s - ORIGIN
    times: Floats = np.sort([place * length for place, _ in points])
    power = np.array([watts for _, watts in points])
    begin, cut, end = times[0], times[0] + middle * (length - times[0]), length
    whole = cost_of_steps(times, power, series, begin, end, ORIGIN)
    spans = ((begin, cut), (cut, end))
    parts = [cost_of_steps(times, power, series, a, b, ORIGIN) for a, b in spans]
    edges = np.append(times, end)
    lengths = np.diff(edges)
    pieces = charge_intervals(edges[:-1], edges[1:], power * lengths, series, ORIGIN)
    size = (
        1e-9 * (float(np.abs(series.value).max()) + 1) * (float(power.max()) + 1) * length / 3.6e6
    )
    assert whole == pytest.approx(sum(parts), abs=size)
    assert whole == pytest.approx(float(pieces.sum()), abs=size)
    accrued = clock(series, ORIGIN)(edges)
    assert whole == pytest.approx(float((power * np.diff(accrued)).sum()), abs=10 * size)
    energy = cost_of_steps(times, power, 1.0, begin, end)
    assert energy == pytest.approx(float((power * np.diff(clock(1.0)(edges))).sum()), abs=1e-9)
    assert energy == pytest.approx(float((power * lengths).sum()) / 3.6e6, abs=1e-9 + size)


def test_power_outside_of_the_window_costs_nothing() -> None:
    series = make([3600.0, 3600.0], [1.0, 3.0])
    times, power = np.array([0.0, 1800.0, 5400.0]), np.array([1000.0, 3000.0, 500.0])
    cost = cost_of_steps(times, power, series, 900.0, 6300.0, ORIGIN)
    parts = (1 * 900 * 1.0, 3 * 1800 * 1.0, 3 * 1800 * 3.0, 0.5 * 900 * 3.0)
    assert cost == pytest.approx(sum(parts) / 3600)
    assert cost_of_steps(times, power, series, 7200.0, 7200.0, ORIGIN) == 0.0


def test_a_moment_is_charged_at_its_price() -> None:
    series = make([3600.0, 3600.0], [1.0, 3.0])
    begin, end = np.array([1800.0, 3600.0, 7200.0]), np.array([1800.0, 3600.0, 7200.0])
    cost = charge_intervals(begin, end, np.full(3, 3.6e6), series, ORIGIN)
    assert cost.tolist() == [1.0, 3.0, 3.0]
