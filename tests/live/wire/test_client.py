"""The link: questions get their answers, once, from the controller that they were meant for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from tests.support.clocks import ManualTime
from wattkeeper.live.wire import client, server
from wattkeeper.live.wire.client import RemoteCoordinator, coordinator_from_environment
from wattkeeper.live.wire.clock import RemoteWallClock
from wattkeeper.live.wire.messages import (
    Assignment,
    AttemptResult,
    Begun,
    Broken,
    EpochReport,
    Lost,
    Message,
    ProfileReport,
)
from wattkeeper.live.wire.server import SessionServer
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.points.views import Measurement, Slice

TOKEN, RUN, NOW_S = "secret", "job#1.0", 7.0
ASSIGNMENT = Assignment("job", 1, 1, 32, 64, 9, profile_w=(200.0, 100.0), slice=Slice(200.0))

Said = tuple[str, Message | Lost | Broken, int]


class Controller:
    """A server that answers at once, and remembers what was said."""

    def __init__(self, port: int = 0) -> None:
        self.said: SimpleQueue[Said] = SimpleQueue()
        self.server = SessionServer(self.answer, TOKEN, port)
        self.server.expect(RUN, 60.0)
        self.server.listen()

    def answer(
        self, run: str, event: Message | Lost | Broken, ticket: Any = None, rank: int = 0
    ) -> None:
        self.said.put((run, event, rank))
        self.server.answer(
            ticket,
            {
                "assignment": ASSIGNMENT._asdict(),
                "power_limit_w": 150.0,
                "goes_on": True,
                "now_s": NOW_S,
            },
        )

    def coordinator(
        self, run: str = RUN, token: str = TOKEN, lease_s: float = 20.0
    ) -> RemoteCoordinator:
        return RemoteCoordinator("127.0.0.1", self.server.port, token, run, lease_s=lease_s)


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.server.close()


def test_a_coordinator_asks_the_controller(controller: Controller) -> None:
    coordinator = controller.coordinator()
    report = ProfileReport((Measurement(200.0, 1.5, 180.0),), 0, 1.0, None)
    assert coordinator.begin() == ASSIGNMENT
    assert coordinator.report_profile(report) == 150.0
    epoch, end = EpochReport(1, 0.5, 2.0, None), AttemptResult("reached", 1, 2.0, None)
    assert coordinator.report_epoch(epoch)
    assert coordinator.renew_lease()
    coordinator.end(end)
    said = [controller.said.get(timeout=9) for _ in range(4)]
    assert said == [(RUN, event, 0) for event in (Begun(), report, epoch, end)]
    assert [type(event) for _, event, _ in said] == [
        Begun,
        ProfileReport,
        EpochReport,
        AttemptResult,
    ]


def test_a_heartbeat_learns_of_a_stop(controller: Controller) -> None:
    coordinator = controller.coordinator()
    assert coordinator.renew_lease()
    controller.server.stop(RUN)
    assert not coordinator.renew_lease()


def test_a_session_that_waits_for_other_knobs_gets_each_once(controller: Controller) -> None:
    coordinator, server = controller.coordinator(), controller.server
    server.limit(RUN, 120.0)
    assert coordinator.await_knobs()
    assert coordinator.power_limit_w == 120.0
    server.limit(RUN, 120.0)  # the one that it knows
    later = threading.Thread(target=coordinator.await_knobs)
    later.start()
    later.join(0.1)
    assert later.is_alive()
    server.limit(RUN, 90.0)
    later.join(20)
    assert coordinator.power_limit_w == 90.0
    server.stop(RUN)
    assert not coordinator.await_knobs()
    assert controller.said.empty()


def test_an_unexpected_run_is_told_to_give_up(controller: Controller) -> None:
    with pytest.raises(EnvironmentLacks, match="does not expect this training"):
        controller.coordinator(run="job#1.other").begin()


def test_a_wrong_token_is_not_answered(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    ManualTime().govern(monkeypatch, client)
    with pytest.raises(EnvironmentLacks, match="no controller answers"):
        controller.coordinator(token="guessed").begin()
    assert controller.said.empty()


def is_closed(peer: socket.socket, said: bytes) -> bool:
    """Whether the server closes a connection on which this is said, without an answer."""
    try:
        peer.sendall(said)
        return peer.recv(10) == b""
    except (BrokenPipeError, ConnectionResetError):  # it closed before it had read all
        return True


def test_malformed_messages_are_dropped(controller: Controller) -> None:
    for said in (b"\xff\n", b"[]\n", b"{}\n", b'{"token": 1}\n', b"{" * 100_000 + b"\n"):
        with socket.create_connection(("127.0.0.1", controller.server.port)) as peer:
            assert is_closed(peer, said)
    assert controller.coordinator().begin() == ASSIGNMENT


@contextmanager
def came_back(controller: Controller, port: int) -> Iterator[None]:
    """Another one in the place of a controller that is closed."""
    again = Controller(port)
    try:
        yield
    finally:
        again.server.close()
        controller.server = SessionServer(controller.answer, TOKEN)


def test_a_coordinator_finds_a_restarted_controller(controller: Controller) -> None:
    coordinator, port = controller.coordinator(), controller.server.port
    assert coordinator.begin() == ASSIGNMENT
    controller.server.close()
    with came_back(controller, port):
        assert coordinator.begin() == ASSIGNMENT


def test_a_clock_made_without_a_controller_waits_for_the_time(controller: Controller) -> None:
    coordinator, port = controller.coordinator(), controller.server.port
    hopeless = controller.coordinator(lease_s=0.05)
    controller.server.close()
    with pytest.raises(EnvironmentLacks, match="no controller answers"):
        RemoteWallClock(hopeless).now_s()
    found: SimpleQueue[float] = SimpleQueue()
    asking = threading.Thread(target=lambda: found.put(RemoteWallClock(coordinator).now_s()))
    asking.start()
    with came_back(controller, port):
        assert found.get(timeout=20) == NOW_S
        asking.join()


def test_the_clock_of_a_guard_does_not_wait(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemoteWallClock, "waits", False)
    coordinator, port = controller.coordinator(), controller.server.port
    controller.server.close()
    wall = RemoteWallClock(coordinator)
    assert wall.now_s() == 0.0
    with came_back(controller, port):
        assert wall.now_s() == NOW_S


def test_silent_and_hung_runs_are_distinguished(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualTime().govern(monkeypatch, server)
    controller.server.expect("never", 60.0)
    controller.server.expect("once", 60.0)
    assert controller.coordinator(run="once").renew_lease()
    clock.sleep(61.0)
    controller.server.later(lambda: None)
    found = [controller.said.get(timeout=20) for _ in range(3)]
    losses = {run: event for run, event, _ in found}
    assert losses == {RUN: Lost("silent"), "never": Lost("silent"), "once": Lost("hung")}


def test_an_environment_that_names_no_controller_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WATTKEEPER_LINK", "somewhere")
    monkeypatch.delenv("WATTKEEPER_RUN", raising=False)
    with pytest.raises(InputError, match="unset it"):
        coordinator_from_environment()
    clock = ManualTime().govern(monkeypatch, client)
    began_s = clock.now_s
    with pytest.raises(EnvironmentLacks, match=r"no controller answers at 127\.0\.0\.1:9"):
        RemoteCoordinator("127.0.0.1", 9, TOKEN, RUN, lease_s=20.0).begin()
    assert 20 <= clock.now_s - began_s < 40
