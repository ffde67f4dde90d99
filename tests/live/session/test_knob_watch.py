"""Power limits that the controller changes reach a training while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tests.live.wire.test_client import RUN, Controller
from tests.support.processes import until
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.session.knob_watch import KnobWatch


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.server.close()


def watch(controller: Controller) -> tuple[KnobWatch, list[float], threading.Event]:
    """A watch that began, the limits that it puts in force, and the request to stop."""
    limits: list[float] = []
    stop = threading.Event()
    made = KnobWatch(controller.coordinator(), WallClock(), limits.append, stop)
    made.begin()
    return made, limits, stop


def is_last(limits: list[float], limit_w: float) -> bool:
    return limits[-1:] == [limit_w]


def test_a_limit_is_put_in_force_while_the_training_goes_on(controller: Controller) -> None:
    made, limits, stop = watch(controller)
    for limit_w in (120.0, 90.0):
        controller.server.limit(RUN, limit_w)
        until(partial(is_last, limits, limit_w))
    clock = WallClock()
    assert made.sleep_until(clock.now_s() + 60, 90.0)  # the change ends the sleep
    assert not stop.is_set()


def test_a_stop_is_told_at_once(controller: Controller) -> None:
    made, limits, stop = watch(controller)
    controller.server.stop(RUN)
    until(stop.is_set)
    assert not made.sleep_until(WallClock().now_s() + 60, None)
    assert limits == []


def test_nothing_is_put_in_force_once_the_session_ends(controller: Controller) -> None:
    made, limits, _ = watch(controller)
    made.end()
    controller.server.limit(RUN, 120.0)
    assert made.sleep_until(WallClock().now_s() + 5, None)
    assert limits == []
