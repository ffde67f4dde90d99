"""The controller's end of the link: one thread for sessions, ends of processes, and leases."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import EnvironmentLacks

LONGEST_LINE: Final = 1 << 22
ENVELOPE: Final = frozenset({"token", "run", "number", "kind"})

Post = Callable[[str, str, Mapping[str, Any], Any], None]
"""Takes the run, the kind of event, its payload, and the ticket of the reply."""


class ReplyTicket(NamedTuple):
    """The request that a reply belongs to."""

    peer: _Peer
    number: int


class _Peer:
    """A connection to a session; a session may reconnect."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.run: str | None = None
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

    def renew(self) -> None:
        self.renewed = True
        self.ends_s = time.monotonic() + self.lease_s


class SessionServer:
    """Receives the requests of sessions and replies to them.

    It sleeps until a request comes, a process ends, or a lease may end. A run that it does not
    expect is told to give up.

    Args:
        post: Called in its thread with all requests but heartbeats, which it answers itself, and
            with `lost` and a cause once a run was silent for longer than its lease.
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

        self.later(mark)

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
            self._post("", "broken", {"error": f"{type(error).__name__}: {error}"}, None)
            raise

    def _serve(self) -> None:
        while self._open:
            ends_s = min((lease.ends_s for lease in self._leases.values()), default=None)
            patience_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
            ready = self._selector.select(patience_s)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            while self._calls:  # first: a request sees what was called before it came
                self._calls.popleft()()
            for key, _ in ready:
                key.data(key.fileobj)
            self._end_leases()

    def _end_leases(self) -> None:
        now_s = time.monotonic()
        for run in [run for run, lease in self._leases.items() if lease.ends_s <= now_s]:
            cause = "hung" if self._leases.pop(run).renewed else "silent"
            self._post(run, "lost", {"cause": cause}, None)

    def _accept(self, _: object) -> None:
        try:
            connection, _address = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(connection)
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
        if len(rest) > LONGEST_LINE:
            self._drop(peer)
            return
        for line in lines:
            if peer.connection.fileno() < 0:
                return
            try:
                self._handle(peer, json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                self._drop(peer)
                return

    def _handle(self, peer: _Peer, request: dict[str, Any]) -> None:
        if peer.run is None:
            if not hmac.compare_digest(str(request["token"]).encode(), self._token.encode()):
                self._drop(peer)
                return
            peer.run = str(request["run"])
        number, kind = int(request["number"]), str(request["kind"])
        payload = {name: value for name, value in request.items() if name not in ENVELOPE}
        ticket = ReplyTicket(peer, number)
        lease = self._leases.get(peer.run)
        if lease is None:
            self._send(ticket, {"gone": True})
            return
        if not lease.over:
            lease.renew()
        if kind == "alive":
            self._send(ticket, {"goes_on": not (lease.stopped or lease.over)})
        else:
            self._post(peer.run, kind, payload, ticket)

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
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        key = self._selector.get_key(peer.connection)
        if key.events != events:
            self._selector.modify(peer.connection, events, key.data)

    def _drop(self, peer: _Peer) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()
