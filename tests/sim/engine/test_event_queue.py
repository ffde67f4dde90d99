"""The queue of events: by time, priority and the order in which they were added."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.sim.kernel.loop import ARRIVAL, STOP, Callback, EventHeap

times = st.one_of(st.sampled_from([0.0, 1.0, 1.5]), st.floats(-1e12, 1e12), st.just(math.inf))
steps = st.lists(st.one_of(st.none(), st.tuples(times, st.integers(STOP, 3))), max_size=200)


@given(steps)
def test_events_come_in_order(asked: list[tuple[float, int] | None]) -> None:
    """`None` removes the first event, the others are added."""
    queue = EventHeap()
    waiting: list[tuple[float, int, int, Callback]] = []
    for number, step in enumerate((*asked, *[None] * len(asked))):
        if step is not None:
            event = Callback(print, number)
            queue.add(step[0], event, step[1])
            waiting.append((*step, number, event))
        elif waiting:
            first_s, priority, _, event = waiting.pop(
                waiting.index(min(waiting, key=lambda e: e[:3]))
            )
            assert queue.first is event
            assert queue.first_s == first_s
            assert queue.is_before_arrivals() == (priority < ARRIVAL)
            queue.remove_first()
        assert (queue.first is None) == (not waiting)
    assert queue.first is None
    assert queue.first_s == math.inf
