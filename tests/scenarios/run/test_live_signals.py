"""How many slots of a live signal had no value in time."""

from __future__ import annotations

from typing import Any

import pytest

from wattkeeper.live.controller.events import SignalArrived
from wattkeeper.scenarios.run.live_signals import count_slots_without

Arrival = tuple[float, SignalArrived]


def arrival(time_s: float, since_s: float, *, fallback: bool = False) -> Arrival:
    return time_s, SignalArrived("s", since_s, 1.0, fallback)


FIRST = {"slot_s": 10.0, "values": [[-13.0, 1.0], [-3.0, 1.0]], "fallback": False}
"""The slot of second 0 began 3 s before."""


@pytest.mark.parametrize(
    ("known", "arrivals", "until_s", "expected"),
    [
        (FIRST, [], 6.0, 0),
        (FIRST, [], 16.0, 0),
        (FIRST, [], 17.0, 1),
        (FIRST, [], 47.0, 4),
        (FIRST, [arrival(8, 7), arrival(17.5, 17), arrival(29, 27)], 40.0, 0),
        (FIRST, [arrival(8, 7), arrival(29, 27)], 40.0, 1),
        (FIRST, [arrival(18, 7), arrival(18, 17)], 30.0, 1),
        (FIRST, [arrival(17, 7, fallback=True), arrival(17.2, 7), arrival(27.5, 17)], 30.0, 2),
        (FIRST | {"fallback": True}, [arrival(8, 7)], 17.0, 1),
        (FIRST | {"values": [[-43.0, 1.0]]}, [], 27.0, 3),
    ],
)
def test_slots_without_a_value_in_time(
    known: dict[str, Any], arrivals: list[Arrival], until_s: float, expected: int
) -> None:
    assert count_slots_without(known, arrivals, until_s) == expected
