"""The session's end of its link to the controller: JSON lines over TCP."""

import json
import os
import socket
import time
from threading import local
from typing import Any, Final

from typing_extensions import override

from wattkeeper.live.wire.messages import (
    MESSAGES,
    Alive,
    Assignment,
    AttemptResult,
    Begun,
    Coordinator,
    EpochReport,
    KnobsAwaited,
    Message,
    ProfileReport,
    SleepUntil,
    read_message,
)
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.policies.points.views import Slice

LINK: Final = "WATTKEEPER_LINK"
"""Environment variable: `HOST:PORT/TOKEN` of the controller."""
RUN: Final = "WATTKEEPER_RUN"
"""Environment variable: the id by which the controller knows the process that carries an attempt
out, and all that it starts."""
LEASE: Final = "WATTKEEPER_LEASE_S"
"""Environment variable: how long a session may be silent, and looks for its controller, s."""

KINDS: Final = {message: kind for kind, message in MESSAGES.items()}

WAITING: Final = (SleepUntil, KnobsAwaited)
"""Requests whose reply comes when something happens."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0


class RemoteCoordinator(Coordinator):
    """A coordinator that asks the controller; see `wattkeeper.live.wire.messages.Coordinator`.

    A request whose reply got lost is sent again; the controller ignores what it knows already.
    Each thread has its own connection, so that a heartbeat never waits for another request.

    It asks as the process `run`, of that rank in its training; only rank 0 reports. It retries for
    `lease_s`, s.

    Attributes:
        now_s: Time of the run at the last reply that states it, s.
        power_limit_w: The limit that the controller last stated, W; None if it stated none.
    """

    def __init__(
        self, host: str, port: int, token: str, run: str, rank: int = 0, lease_s: float = 60.0
    ) -> None:
        self._address = host, port
        self._hello = {"token": token, "run": run, "rank": rank}
        self._lease_s = self.patience_s = lease_s
        self._thread = local()
        self.now_s = 0.0
        self.power_limit_w: float | None = None

    @override
    def begin(self) -> Assignment:
        assignment: Assignment = read_message(Assignment, self._ask(Begun())["assignment"])
        self.power_limit_w = assignment.power_limit_w
        return assignment

    @override
    def report_profile(self, report: ProfileReport) -> float | Slice | None:
        reply = self._ask(report)
        if report.reached or reply.get("slice") is not None:
            return _slice(reply["slice"])
        return float(reply["power_limit_w"])

    @override
    def report_epoch(self, report: EpochReport) -> bool:
        return bool(self._ask(report)["goes_on"])

    @override
    def renew_lease(self) -> bool:
        return bool(self._ask(Alive())["goes_on"])

    @override
    def end(self, outcome: AttemptResult) -> None:
        self._ask(outcome)

    def await_knobs(self) -> bool:
        """Wait until the power limit is another than `power_limit_w`, or the training shall stop.

        Returns:
            Whether the training continues.
        """
        return bool(self._ask(KnobsAwaited(self.power_limit_w))["goes_on"])

    def sleep_until(self, time_s: float) -> bool:
        """Sleep until a time of the run, s, another power limit, or until the training shall stop.

        Only where the controller keeps the time.

        Returns:
            Whether the training continues.
        """
        reply = self._ask(SleepUntil(time_s, self.power_limit_w))
        return bool(reply["goes_on"])

    def _ask(self, message: Message) -> dict[str, Any]:
        give_up_s = time.monotonic() + self.patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                reply = self._exchange(message)
                break
            except (OSError, ValueError) as error:
                self._hang_up()
                if time.monotonic() > give_up_s:
                    host, port = self._address
                    raise EnvironmentLacks(
                        f"no controller answers at {host}:{port} ({error}): it was killed or ended "
                        "its run; the next `wattkeeper run --live` goes on with it"
                    ) from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if reply.get("gone"):
            raise EnvironmentLacks(
                "the controller does not expect this training any more: it was given up, or "
                "another process does it now"
            )
        if "now_s" in reply:
            self.now_s = float(reply["now_s"])
        if reply.get("power_limit_w") is not None:
            self.power_limit_w = float(reply["power_limit_w"])
        return reply

    def _exchange(self, message: Message) -> dict[str, Any]:
        thread = self._thread
        if getattr(thread, "connection", None) is None:
            thread.connection = socket.create_connection(self._address, timeout=self._lease_s)
            thread.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread.replies = thread.connection.makefile("rb")
            thread.number = 0
        thread.connection.settimeout(None if isinstance(message, WAITING) else self._lease_s)
        thread.number += 1
        about = {**self._hello, "kind": KINDS[type(message)], "number": thread.number}
        request = {**about, **message._asdict()}
        thread.connection.sendall(json.dumps(request).encode() + b"\n")
        line = thread.replies.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("it hung up")
        reply: dict[str, Any] = json.loads(line)
        if reply["number"] != thread.number:
            raise ValueError("it answers another request")
        return reply

    def _hang_up(self) -> None:
        connection = getattr(self._thread, "connection", None)
        if connection is not None:
            self._thread.replies.close()
            connection.close()
            self._thread.connection = None


def _slice(values: list[Any] | None) -> Slice | None:
    return None if values is None else Slice(*values)


def coordinator_from_environment() -> RemoteCoordinator:
    """The coordinator of the attempt that a live run started this process for.

    Raises:
        InputError: If the environment does not name one as a controller would.
    """
    text = os.environ.get(LINK, "")
    address, _, token = text.partition("/")
    host, _, port = address.rpartition(":")
    run = os.environ.get(RUN)
    if not (host and port.isdecimal() and token and run):
        raise InputError(
            f"{LINK}={text!r} names no controller with {RUN}={run!r}: unset it; only "
            "`wattkeeper run --live` sets it"
        )
    rank, lease_s = int(os.environ.get("RANK", "0")), float(os.environ.get(LEASE, "60"))
    return RemoteCoordinator(host, int(port), token, run, rank, lease_s)
