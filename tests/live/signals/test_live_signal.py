"""A signal whose values arrive: what a policy reads of it, and when."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.live.signals.live_signal import LiveSignal, TimedValue
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.sim.kernel.clock import FixedTime


def make(*values: float) -> LiveSignal:
    """Slots of 10 s, the last of which began 3 s before the run."""
    first_s = -3.0 - 10 * (len(values) - 1)
    known = [TimedValue(first_s + 10 * n, value) for n, value in enumerate(values)]
    return LiveSignal("s", "W", 10.0, known, PersistenceConfig())


def test_values_hold_until_others_arrive() -> None:
    signal = make(1.0, 2.0, 3.0)
    view = signal.view(FixedTime(0.0))
    assert (view.value, view.since_s, view.until_s, view.slot_s, view.unit) == (3, -3, 7, 10, "W")
    assert view.history(2).tolist() == [2, 3]
    assert view.history(9).tolist() == [1, 2, 3]
    late = signal.view(FixedTime(28.0))
    assert (late.value, late.since_s, late.until_s) == (3, 27, 37)
    assert late.history(3).tolist() == [3, 3, 3]
    assert signal.receive(TimedValue(27.0, 5.0))
    assert late.value == 5
    assert late.history(5).tolist() == [2, 3, 3, 3, 5]
    assert late.forecast(3).tolist() == [5, 5, 5]
    assert signal.next_change_s(28.0) == math.inf


def test_corrections_and_old_values() -> None:
    signal = make(1.0)
    assert not signal.receive(TimedValue(-3.0, 1.0)), "known"
    assert signal.receive(TimedValue(-3.0, 1.5)), "corrected"
    assert not signal.receive(TimedValue(-23.0, 9.0)), "of the past"
    assert signal.view(FixedTime(0.0)).history(5).tolist() == [1.5]
    assert signal.receive(TimedValue(7.0, 2.0))
    assert signal.receive(TimedValue(17.0, 3.0))
    assert not signal.receive(TimedValue(7.0, 2.5)), "late"
    assert signal.view(FixedTime(18.0)).history(5).tolist() == [1.5, 2.5, 3.0]


def test_no_forecast() -> None:
    signal = LiveSignal("s", "W", 10.0, [TimedValue(0.0, 1.0)], None)
    with pytest.raises(PolicyError, match="'s' has no forecast"):
        signal.view(FixedTime(0.0)).forecast(2)


@given(st.lists(st.tuples(st.integers(-3, 20), st.floats(-9, 9)), max_size=12), st.floats(0, 300))
def test_slots_have_no_gaps(arrivals: list[tuple[int, float]], now_s: float) -> None:
    signal, newest = make(0.0), (0, 0.0)
    for slot, value in arrivals:
        changed = signal.receive(TimedValue(-3.0 + 10 * slot, value))
        if slot >= newest[0]:
            assert changed == (slot > newest[0] or value != newest[1])
            newest = slot, value
        else:
            assert not changed
    view = signal.view(FixedTime(now_s))
    assert view.value == newest[1]
    assert view.since_s <= max(now_s, signal.since_s)
    assert view.until_s > now_s
    assert len(view.history(10_000)) >= newest[0] + 1
