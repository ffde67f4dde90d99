"""What is due when."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.sim.engine.agenda import Agenda, Callback


@given(st.lists(st.none() | st.integers(0, 6), max_size=60))
def test_comes_by_time_and_at_one_time_in_the_order_of_entering(steps: list[int | None]) -> None:
    """None takes out what comes first; a number enters something at that time."""
    agenda, waiting, came = Agenda(), list[tuple[float, int]](), list[int]()
    for number, step in enumerate(steps):
        if step is not None:
            agenda.enter(float(step), Callback(came.append, number))
            waiting.append((float(step), number))
        elif waiting:
            first = min(waiting)
            waiting.remove(first)
            agenda.pop().happen()
            assert came[-1] == first[1]
        assert agenda.next_s == min(waiting, default=(math.inf, 0))[0]
    while waiting:
        agenda.pop().happen()
        assert came[-1] == waiting.pop(waiting.index(min(waiting)))[1]
    assert agenda.next_s == math.inf
