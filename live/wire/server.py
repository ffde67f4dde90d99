"""The controller's end of the link: one thread for sessions, ends of processes, and leases."""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final, NamedTuple, get_args

from wattkeeper.live.wire.messages import (
    MESSAGES,
    Alive,
    AttemptResult,
    Broken,
    Count,
    KnobsAwaited,
    Lost,
    Message,
    SessionCause,
    Text,
    read_message,
)
from wattkeeper.policies.errors import EnvironmentLacks

LONGEST_LINE: Final = 1 << 20
"""Longest request, and longest unread reply, of a session that stated the token, bytes."""
LONGEST_FIRST_LINE: Final = 1 << 16
"""Longest request of a connection that has not stated the token, bytes."""
FIRST_LINE_S: Final = 10.0
"""A connection that has not stated the token for so long is closed, s."""
MOST_UNAUTHENTICATED: Final = 64
"""Connections that have not stated the token; one more closes the oldest of them."""

Post = Callable[[str, Message | Lost | Broken, Any, int], None]
"""Takes the run, the event, the ticket of the reply, and the rank of the process."""


class Envelope(NamedTuple):
    """Where a request comes from.

    Attributes:
        token: The secret that it states.
        run: The process that it comes from.
        rank: Rank of that process in its training.
        number: Its number on its connection, which the reply repeats.
    """

    token: Text
    run: Text
    rank: Count
    number: Count


def parse_request(line: bytes | bytearray) -> tuple[Envelope, Message]:
    """A request of a session from a line of JSON.

    Raises:
        ValueError: If it is no request, or a value of it has a wrong type or is out of range.
    """
    try:
        fields = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    kind = fields.pop("kind", None) if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise ValueError("no request of a known kind")
    if fields.keys() != {*Envelope._fields, *MESSAGES[kind]._fields}:
        raise ValueError("missing or unknown fields")
    envelope, message = read_message(Envelope, fields), read_message(MESSAGES[kind], fields)
    if isinstance(message, AttemptResult) and message.cause not in get_args(SessionCause):
        raise ValueError("no session can report this cause")
    return envelope, message


class ReplyTicket(NamedTuple):
    """The request that a reply belongs to."""

    peer: _Peer
    number: int


class _Peer:
    """A connection to a session; a session may reconnect.

    Attributes:
        run: The run that it stated together with the token; None before that.
        ends_s: When it is closed, if it has not stated the token by then, s.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.run: str | None = None
        self.ends_s = time.monotonic() + FIRST_LINE_S
        self.received = bytearray()
        self.unsent = bytearray()


class _Lease:
    """The lease of a run: how long it may be silent."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.ends_s = time.monotonic() + lease_s
        self.renewed = False
        self.stopped = False
        self.over = False
        self.power_limit_w: float | None = None
        self.waiting: tuple[ReplyTicket, float | None] | None = None

    def renew(self) -> None:
        self.renewed = True
        self.ends_s = time.monotonic() + self.lease_s


class SessionServer:
    """Receives the requests of sessions and replies to them.

    It sleeps until a request comes, a process ends, or a lease may end. A run that it does not
    expect is told to give up. A connection that sends anything but requests with the token is
    closed; until it has stated the token, its bytes, its time and the number of its kind are
    bounded.

    Args:
        post: Called in its thread with all requests but heartbeats and those that wait for other
            knobs, which it answers itself, and with `Lost` once a run was silent for
            longer than its lease.
        token: The secret of the sessions.
        port: Its port; 0: any.
        host: Its address.

    Raises:
        EnvironmentLacks: If it cannot listen there.
    """

    def __init__(self, post: Post, token: str, port: int = 0, host: str = "127.0.0.1") -> None:
        self._post = post
        self._token = token
        self._leases: dict[str, _Lease] = {}
        self._unauthenticated: dict[_Peer, None] = {}
        self._calls: deque[Callable[[], object]] = deque()
        self._selector = selectors.DefaultSelector()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            raise EnvironmentLacks(f"cannot listen at {host}:{port}: {error.strerror}") from None
        self.port: int = self._socket.getsockname()[1]
        self._socket.setblocking(False)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, lambda _: None)
        self._open = True
        self._thread = Thread(target=self._run, name="wattkeeper-link", daemon=True)
        self._thread.start()

    def listen(self) -> None:
        """Accept sessions; call `expect` for their runs before."""
        self._socket.listen(128)
        register, reads = self._selector.register, selectors.EVENT_READ
        self.later(lambda: register(self._socket, reads, self._accept))

    def expect(self, run: str, lease_s: float) -> None:
        """Begin the lease (s) of a run that starts, or that ran while no server listened."""
        self.later(lambda: self._leases.__setitem__(run, _Lease(lease_s)))

    def forget(self, run: str) -> None:
        """Drop the lease of a run whose process is gone."""
        self.later(lambda: self._leases.pop(run, None))

    def stop(self, run: str, *, over: bool = False) -> None:
        """Tell a run to stop at its next request; its lease begins anew.

        Args:
            run: Its id.
            over: Whether it reported its end; its lease is then renewed no more.
        """

        def mark() -> None:
            lease = self._leases.get(run)
            if lease is not None:
                lease.renew()
                lease.over, lease.stopped = lease.over or over, True
                self._reply_knobs(lease)

        self.later(mark)

    def limit(self, run: str, limit_w: float) -> None:
        """State the power limit of a run, W, which it takes over if it waits for others."""

        def mark() -> None:
            lease = self._leases.get(run)
            if lease is not None:
                lease.power_limit_w = limit_w
                self._reply_knobs(lease)

        self.later(mark)

    def _reply_knobs(self, lease: _Lease) -> None:
        """Reply to a run that waits for other knobs, if there are any, or if it shall stop."""
        if lease.waiting is None:
            return
        ticket, known_w = lease.waiting
        stops, limit_w = lease.stopped or lease.over, lease.power_limit_w
        if stops or (limit_w is not None and limit_w != known_w):
            lease.waiting = None
            self._send(ticket, {"goes_on": not stops, "power_limit_w": limit_w})

    def answer(self, ticket: Any, reply: Mapping[str, Any]) -> None:
        """Send a reply, if the connection is still there."""
        if ticket is not None:
            self.later(lambda: self._send(ticket, reply))

    def watch(self, descriptor: int, ended: Callable[[], None]) -> None:
        """Call back, in the server's thread, and close a descriptor once it can be read."""

        def readable(_: int) -> None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            ended()

        self.later(lambda: self._selector.register(descriptor, selectors.EVENT_READ, readable))

    def later(self, call: Callable[[], object]) -> None:
        """Call a function in the server's thread; for any thread and for signal handlers."""
        self._calls.append(call)
        with contextlib.suppress(OSError):  # closed
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close all connections."""
        self.later(lambda: setattr(self, "_open", False))
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._socket.close()
        self._selector.close()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # else the controller would wait for ever
            self._post("", Broken(f"{type(error).__name__}: {error}"), None, 0)
            raise

    def _serve(self) -> None:
        while self._open:
            ready = self._selector.select(self._timeout_s())
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            while self._calls:  # first: a request sees what was called before it came
                self._calls.popleft()()
            for key, _ in ready:
                key.data(key.fileobj)
            self._end_leases()

    def _timeout_s(self) -> float | None:
        """Time until a lease, or the time to state a token, ends, s; None without any."""
        ends_s = min((lease.ends_s for lease in self._leases.values()), default=math.inf)
        oldest = next(iter(self._unauthenticated), None)
        if oldest is not None:
            ends_s = min(ends_s, oldest.ends_s)
        return None if ends_s == math.inf else max(0.0, ends_s - time.monotonic())

    def _end_leases(self) -> None:
        now_s = time.monotonic()
        for peer in [peer for peer in self._unauthenticated if peer.ends_s <= now_s]:
            self._drop(peer)
        for run in [run for run, lease in self._leases.items() if lease.ends_s <= now_s]:
            lost = Lost("hung" if self._leases.pop(run).renewed else "silent")
            self._post(run, lost, None, 0)

    def _accept(self, _: object) -> None:
        try:
            connection, _address = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(connection)
        if len(self._unauthenticated) >= MOST_UNAUTHENTICATED:
            self._drop(next(iter(self._unauthenticated)))
        self._unauthenticated[peer] = None
        self._selector.register(
            connection, selectors.EVENT_READ, lambda _, peer=peer: self._receive(peer)
        )

    def _receive(self, peer: _Peer) -> None:
        if peer.unsent:
            self._write(peer)
        try:
            received = peer.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop(peer)
            return
        peer.received += received
        *lines, rest = peer.received.split(b"\n")
        peer.received = bytearray(rest)
        for line in lines:
            if peer.connection.fileno() < 0:
                return
            if not self._handle(peer, line):
                self._drop(peer)
                return
        if len(rest) > self._longest_line(peer):
            self._drop(peer)

    def _longest_line(self, peer: _Peer) -> int:
        return LONGEST_FIRST_LINE if peer.run is None else LONGEST_LINE

    def _handle(self, peer: _Peer, line: bytearray) -> bool:
        """Handle a request; False if it is none, or none of a session."""
        if len(line) > self._longest_line(peer):
            return False
        try:
            envelope, message = parse_request(line)
            token = envelope.token.encode()
        except ValueError:
            return False
        if peer.run is None:
            if not hmac.compare_digest(token, self._token.encode()):
                return False
            peer.run = envelope.run
            del self._unauthenticated[peer]
        ticket = ReplyTicket(peer, envelope.number)
        lease = self._leases.get(peer.run)
        if lease is None:
            self._send(ticket, {"gone": True})
            return True
        if not lease.over:
            lease.renew()
        match message:
            case Alive():
                self._send(ticket, {"goes_on": not (lease.stopped or lease.over)})
            case KnobsAwaited(known_w):
                lease.waiting = ticket, known_w
                self._reply_knobs(lease)
            case _:
                self._post(peer.run, message, ticket, envelope.rank)
        return True

    def _send(self, ticket: ReplyTicket, reply: Mapping[str, Any]) -> None:
        peer = ticket.peer
        peer.unsent += json.dumps({"number": ticket.number, **reply}).encode() + b"\n"
        self._write(peer)

    def _write(self, peer: _Peer) -> None:
        if peer.connection.fileno() < 0:
            return
        try:
            sent = peer.connection.send(peer.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(peer)
            return
        del peer.unsent[:sent]
        if len(peer.unsent) > LONGEST_LINE:  # it sends requests and reads no replies
            self._drop(peer)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        key = self._selector.get_key(peer.connection)
        if key.events != events:
            self._selector.modify(peer.connection, events, key.data)

    def _drop(self, peer: _Peer) -> None:
        self._unauthenticated.pop(peer, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()
