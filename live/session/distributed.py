"""The processes of one training, as torchrun starts them: rank 0 decides for all."""

import itertools
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from wattkeeper.live.host.plain_values import decode, encode
from wattkeeper.live.session.termination import Stopped
from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport, ProfileReport
from wattkeeper.policies.errors import EnvironmentLacks, InputError, WattkeeperError

T = TypeVar("T")

LAST_CALL_S: Final = 30.0
"""How long rank 0 waits until all others have read its last value: the store may end with it."""
FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.5
PAUSES: Final = 50
"""The pause between two reads is this fraction of the time waited so far."""

_sessions = itertools.count()


def is_leader() -> bool:
    """Whether this process measures, reports, and decides."""
    return os.environ.get("RANK", "0") == "0"


def is_distributed() -> bool:
    """Whether the training has other processes."""
    return world_size() > 1


def world_size() -> int:
    """Number of processes of the training."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Ranks:
    """The processes of a training, each of which has a session.

    Values go through the store by which torch connected the processes, not through a collective: a
    process that waits in a collective handles no signal and does not notice that rank 0 is gone.
    """

    def __init__(self) -> None:
        self._session, self._calls = next(_sessions), 0

    def call_together(self, call: Callable[[], T], kind: Any) -> T:
        """Call a function in all processes at the same point; the result of rank 0.

        `kind` is the type of the result, which the others get as JSON.

        Raises:
            InputError: If there are several, and torch has not connected them.
            EnvironmentLacks: If the process of rank 0 failed, or left the session.
        """
        if not is_distributed():
            return call()
        store = connected_store()
        self._calls += 1
        key = self._key(self._calls)
        if not is_leader():
            call()
            value: T = self._await_value(store, key, kind)
            return value
        try:
            value = call()
        except BaseException as error:
            self.leave(error)
            raise
        store.set(key, encode(value))
        return value

    def leave(self, error: BaseException | None) -> None:
        """Tell the other processes, if this is rank 0, that it left the session, and why.

        Args:
            error: What it failed with; None: it waits until all of them have read its last value.
        """
        if not (is_distributed() and is_leader()):
            return
        with suppress(InputError, RuntimeError):  # no process is connected, or none is left
            store = connected_store()
            store.set(self._key("left"), describe_exit(error))
            began_s = time.monotonic()
            while error is None and self._calls and time.monotonic() - began_s < LAST_CALL_S:
                if store.add(self._key(f"{self._calls} read"), 0) >= world_size() - 1:
                    break
                _pause(began_s)

    def _key(self, what: int | str) -> str:
        return f"wattkeeper/{self._session}/{what}"

    def _await_value(self, store: Any, key: str, kind: Any) -> Any:
        began_s = time.monotonic()
        left = self._key("left")
        try:
            while True:
                over = store.check([left])  # first: its last value was stored before it left
                if store.check([key]):
                    value = store.get(key)
                    store.add(f"{key} read", 1)
                    return decode(value, kind)
                if over:
                    break
                _pause(began_s)
            why = store.get(left).decode()
        except RuntimeError as error:
            first = str(error).partition("\n")[0]
            why = f"is gone ({first})"
        raise EnvironmentLacks(f"the process of rank 0, which decides for all, {why}")


def _pause(began_s: float) -> None:
    """Wait for a while, the longer the longer it has waited."""
    waited_s = time.monotonic() - began_s
    time.sleep(min(max(waited_s / PAUSES, FIRST_PAUSE_S), LONGEST_PAUSE_S))


def connected_store() -> Any:
    """The store by which torch connected the processes of this training.

    Raises:
        InputError: If torch has not connected them.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise InputError(
            "this is one of several processes of a training, and they are not connected: call "
            "torch.distributed.init_process_group() before the session begins"
        )
    return torch.distributed.distributed_c10d._get_default_store()


def rank_and_size() -> tuple[int, int]:
    """Number of this process among those that torch connected, and how many there are."""
    from torch import distributed

    return distributed.get_rank(), distributed.get_world_size()


def describe_exit(error: BaseException | None) -> str:
    """How a process left a session, as a part of a sentence."""
    if error is None:
        return "left the session"
    if isinstance(error, Stopped | KeyboardInterrupt):
        return "was told to stop"
    text = str(error) if isinstance(error, WattkeeperError) else f"{type(error).__name__}: {error}"
    return f"failed: {text}"


class FollowerCoordinator:
    """The coordinator of every process but that of rank 0."""

    def begin(self) -> Assignment:
        """An assignment that that of rank 0 replaces."""
        return Assignment("", 1, 1, 1, 1, 1)

    def report_profile(self, report: ProfileReport) -> float:
        """Nothing: only rank 0 measures."""
        return 0.0

    def report_epoch(self, report: EpochReport) -> bool:
        """Continue as long as rank 0 does."""
        return True

    def renew_lease(self) -> bool:
        """Continue as long as rank 0 does."""
        return True

    def end(self, outcome: AttemptResult) -> None:
        """Nothing: rank 0 reports."""
