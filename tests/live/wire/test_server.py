"""The controller's end of the link, and what broken and unauthenticated connections send."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.wire.test_client import RUN, TOKEN, Controller, is_closed
from tests.support.clocks import ManualTime
from wattkeeper.live.wire import server
from wattkeeper.live.wire.messages import (
    LARGEST,
    MESSAGES,
    AttemptResult,
    Begun,
    EpochReport,
    ProfileReport,
    SleepUntil,
)
from wattkeeper.live.wire.server import parse_request

ENVELOPE: dict[str, Any] = {"token": TOKEN, "run": RUN, "rank": 0, "number": 1}
ENDED = {
    "kind": "ended",
    "cause": "reached",
    "epochs": 3,
    "time_s": 1.5,
    "energy_j": 9.0,
    "power_limit_w": None,
    "limit_set": True,
    "how": "counter",
    "message": "",
}
PROFILED = {
    "kind": "profiled",
    "report": 1,
    "time_s": 3.5,
    "energy_j": None,
    "reached": False,
    "measurements": [[200.0, 1.5, 180.0, 0, 32, 0.5, 90], [100, 2, 90, 0, 0, 0.0, 0.0]],
}
VALID = [
    ENVELOPE | {"kind": "begun"},
    ENVELOPE | {"kind": "alive"},
    ENVELOPE | {"kind": "sleep", "until_s": 0.0, "power_limit_w": None},
    ENVELOPE | {"kind": "knobs", "power_limit_w": 200.0},
    ENVELOPE | PROFILED,
    ENVELOPE
    | {
        "kind": "epoch",
        "epoch": 1,
        "metric": 0.5,
        "time_s": 2.0,
        "energy_j": None,
        "is_last": False,
    },
    ENVELOPE | ENDED,
]
INVALID = [
    '{"number": 1e400}',
    '{"number": NaN}',
    '{"number": -1}',
    '{"number": true}',
    '{"number": 1e3}',
    f'{{"number": 1{"0" * 4000}}}',
    '{"rank": 1e400}',
    '{"run": null}',
    '{"kind": "halt"}',
    '{"kind": "lost", "cause": "hung"}',
    '{"kind": []}',
    '{"kind": {}}',
    '{"more": 0}',
    '{"kind": "sleep", "until_s": 1e400, "power_limit_w": null}',
    '{"kind": "sleep", "until_s": -1, "power_limit_w": null}',
    '{"kind": "knobs", "power_limit_w": ""}',
    '{"kind": "epoch", "epoch": 1, "metric": 1, "time_s": 1, "energy_j": null, "is_last": 0}',
    f'{{"kind": "epoch", "epoch": 1{"0" * 400}, "metric": 1, "time_s": 1, "energy_j": null'
    f', "is_last": false}}',
    f'{{"kind": "epoch", "epoch": 1, "metric": 1{"0" * 400}, "time_s": 1, "energy_j": null'
    f', "is_last": false}}',
    '{"kind": "epoch", "epoch": 1, "metric": "1", "time_s": 1, "energy_j": null, "is_last": false}',
    '{"kind": "epoch", "epoch": 1, "metric": 1, "time_s": NaN, "energy_j": null, "is_last": false}',
    '{"kind": "epoch", "epoch": 1, "metric": 1, "time_s": 1, "energy_j": Infinity'
    ', "is_last": false}',
    json.dumps(PROFILED | {"measurements": [[1, 2, 3]]}),
    json.dumps(PROFILED | {"measurements": {"0": [1, 2, 3, 0, 0, 0, 0]}}),
    json.dumps(PROFILED | {"measurements": [[1, 2, 3, 0, 0.5, 0, 0]]}),
    json.dumps(PROFILED | {"measurements": [[1, 2, 3, 0, 0, -1, 0]]}),
    json.dumps(PROFILED | {"report": -1}),
    json.dumps(ENDED | {"cause": "crashed"}),
    json.dumps(ENDED | {"cause": []}),
    json.dumps(ENDED | {"message": "x" * 5000}),
    json.dumps(ENDED | {"limit_set": 1}),
]


def line(request: dict[str, Any], changes: str = "{}") -> bytes:
    """A request as text, with members changed; json.loads would lose what JSON does not allow."""
    kept = {name: value for name, value in request.items() if name not in json.loads(changes)}
    return (json.dumps(kept)[:-1] + "," * (changes != "{}") + changes[1:]).encode() + b"\n"


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.server.close()


def connect(controller: Controller) -> socket.socket:
    return socket.create_connection(("127.0.0.1", controller.server.port), timeout=60)


def test_all_requests_of_sessions_are_read() -> None:
    for request in VALID:
        envelope, message = parse_request(line(request))
        fields = json.loads(json.dumps({**envelope._asdict(), **message._asdict()}))
        assert type(message) is MESSAGES[request["kind"]]
        assert fields == {name: value for name, value in request.items() if name != "kind"}
    diverged = ENVELOPE | {
        "kind": "epoch",
        "epoch": 1,
        "metric": float("nan"),
        "time_s": 1,
        "energy_j": 1e-300,
        "is_last": True,
    }
    assert isinstance(parse_request(line(diverged))[1], EpochReport)


@pytest.mark.parametrize("changes", INVALID)
def test_values_out_of_range_close_their_connection_alone(
    controller: Controller, changes: str
) -> None:
    base = ENVELOPE | ({"kind": "begun"} if '"kind"' not in changes else {})
    with connect(controller) as peer:
        assert is_closed(peer, line(base, changes))
    coordinator = controller.coordinator()
    report = EpochReport(1, 0.5, 2.0, None)
    assert coordinator.report_epoch(report)
    assert controller.said.get(timeout=60)[1] == report
    assert controller.said.empty()


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b"\xff\xfe\n",
        b"x" * (server.LONGEST_FIRST_LINE + 1),
        b" " * (server.LONGEST_FIRST_LINE + 1) + b"\n",
        b"\0\n",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_what_is_no_request_closes_the_connection(controller: Controller, text: bytes) -> None:
    with connect(controller) as peer:
        assert is_closed(peer, text)
    assert controller.coordinator().renew_lease()


def test_a_session_may_not_send_lines_without_end(controller: Controller) -> None:
    with connect(controller) as peer:
        peer.sendall(line(VALID[1]))
        assert peer.recv(100)
        assert is_closed(peer, b"x" * (server.LONGEST_LINE + 1))
    assert controller.coordinator().renew_lease()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_the_controller_listens_at_one_address(host: str) -> None:
    """On Linux, each address from 127.0.0.1 to 127.255.255.254 is of this host."""
    made = server.SessionServer(lambda *_: None, TOKEN, host=host)
    made.listen()
    try:
        socket.create_connection((host, made.port), timeout=60).close()
        for other in {"127.0.0.1", "127.0.0.2", "127.0.0.3"} - {host}:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, made.port), timeout=60)
    finally:
        made.close()


def test_who_does_not_state_the_token_is_not_waited_for(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualTime().govern(monkeypatch, server)
    coordinator = controller.coordinator()
    assert coordinator.renew_lease()
    with connect(controller) as silent, connect(controller) as slow:
        slow.sendall(b'{"token')
        assert controller.coordinator().renew_lease()  # accepted after both
        clock.sleep(server.FIRST_LINE_S + 1)
        assert coordinator.renew_lease()
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
        assert coordinator.renew_lease()


def test_unauthenticated_connections_do_not_fill_the_controller(controller: Controller) -> None:
    coordinator = controller.coordinator()
    assert coordinator.renew_lease()
    peers = [connect(controller) for _ in range(server.MOST_UNAUTHENTICATED + 20)]
    try:
        for peer in peers[:20]:
            assert peer.recv(1) == b""
        assert coordinator.renew_lease()
        assert controller.coordinator().renew_lease()  # a new connection, too
    finally:
        for peer in peers:
            peer.close()


@pytest.mark.slow
def test_who_reads_no_replies_is_left(controller: Controller) -> None:
    with connect(controller) as peer:
        assert any(is_refused(peer, line(VALID[1]) * 2000) for _ in range(1000))
    assert controller.coordinator().renew_lease()


def is_refused(peer: socket.socket, text: bytes) -> bool:
    """Whether a text cannot be sent, as the connection is closed."""
    try:
        peer.sendall(text)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


NUMBERS = [
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-0",
    "1" + "0" * 5000,
    "1e308",
    "-1",
    "0.5",
    "9007199254740993",
    "true",
    "null",
]
TEXTS = [
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"' + "x" * 9000 + '"',
    "[]",
    "{}",
    '"lost"',
    '"halt"',
    "[" * 3000 + "]" * 3000,
    '"alive"',
    '"' + TOKEN + '"',
    '"' + RUN + '"',
]


def fuzz(rng: random.Random) -> bytes:
    """A request that is probably wrong in one way or several."""
    request = rng.choice(VALID)
    members = [f'"{name}": {json.dumps(value)}' for name, value in request.items()]
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        index = rng.randrange(len(members))
        name = members[index].partition(":")[0]
        value = rng.choice(NUMBERS + TEXTS)
        change = rng.randrange(6)
        if change == 0:
            members[index] = rng.choice(members)
        elif change == 1:
            members.insert(index, f'"{rng.choice(["more", "token", "kind"])}": {value}')
        else:
            members[index] = f"{name}: {value}"
    text = bytearray(("{" + ", ".join(members) + "}").encode())
    for _ in range(rng.choice([0, 0, 0, 1, 9])):
        index = rng.randrange(len(text))
        end = index + rng.randrange(1, 9) * rng.randrange(2)
        text[index:end] = rng.choice([b"", b"\n", b"\0", b"[{", b'"', b"\\", b"\xff", b"9e999"])
        text += b"}" * (not text)
    return bytes(text) + rng.choice([b"\n", b"\n", b"\n", b"\r\n", b"", b"\n\n"])


def send_all(peer: socket.socket, texts: list[bytes]) -> None:
    """Send texts, and wait until the server closes the connection.

    Raises:
        TimeoutError: If it does not.
    """
    try:
        for text in texts:
            peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass
    except TimeoutError:
        raise
    except OSError:  # it is closed already
        pass


@pytest.mark.parametrize(
    ("seed", "count"), [(17, 2000), pytest.param(1717, 20_000, marks=pytest.mark.slow)]
)
def test_fuzzed_requests_neither_stop_the_controller_nor_cost_a_report(
    controller: Controller, seed: int, count: int
) -> None:
    rng = random.Random(seed)
    controller.server.expect("honest#1.0", 3600.0)
    controller.server.expect(RUN, 3600.0)
    honest = controller.coordinator("honest#1.0")
    for number in range(count):
        with connect(controller) as peer:
            send_all(peer, [fuzz(rng) for _ in range(rng.choice([1, 1, 3]))])
        if number % 10 == 0:
            assert honest.report_epoch(EpochReport(number + 1, 0.5, 2.0, None))
    reports = [controller.said.get_nowait() for _ in range(controller.said.qsize())]
    honest_reports = [event for run, event, _ in reports if run == "honest#1.0"]
    expected = [EpochReport(number + 1, 0.5, 2.0, None) for number in range(0, count, 10)]
    assert honest_reports == expected
    for _, event, _ in reports:  # none is `Broken`
        assert isinstance(event, Begun | EpochReport | AttemptResult | ProfileReport | SleepUntil)
        assert getattr(event, "time_s", 0) <= LARGEST
