"""The processes of one training, as torchrun starts them: that of rank 0 decides for all."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from wattkeeper.live.session.termination import Stopped
from wattkeeper.live.wire.messages import Assignment, AttemptResult, EpochReport
from wattkeeper.policies.errors import EnvironmentLacks, InputError, WattkeeperError
from wattkeeper.policies.protocols import Measurement

T = TypeVar("T")

LAST_CALL_S: Final = 30.0
"""So long rank 0 stays until all know what it said last: the store may be gone with it."""
FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.5
PAUSES: Final = 50
"""Who has waited for a while looks again after a part of that, one of so many."""

_sessions = itertools.count()


def leads() -> bool:
    """Whether this process measures, reports, and decides."""
    return os.environ.get("RANK", "0") == "0"


def several() -> bool:
    """Whether the training has other processes."""
    return count() > 1


def count() -> int:
    """How many processes the training has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Ranks:
    """The processes of a training, in a session that each of them has.

    What is agreed upon goes through the store by which torch connected them, not through a
    collective: who waits in one of these hears no signal, nor that rank 0 will never come.
    """

    def __init__(self) -> None:
        self._session, self._calls = next(_sessions), 0

    def together(self, call: Callable[[], T]) -> T:
        """What the call gives in the process of rank 0; all processes make it at the same point.

        Raises:
            InputError: If there are several, and torch has not connected them.
            EnvironmentLacks: If the process of rank 0 failed, or left the session.
        """
        if not several():
            return call()
        store = _store()
        self._calls += 1
        key = self._key(self._calls)
        if not leads():
            call()
            value: T = self._heard(store, key)
            return value
        try:
            value = call()
        except BaseException as error:
            self.leave(error)
            raise
        store.set(key, pickle.dumps(value))
        return value

    def leave(self, error: BaseException | None) -> None:
        """Tell those that still wait for rank 0, if this is it, that it left the session, and why.

        Args:
            error: What it failed with, if it did; else it stays for a while until all of them have
                heard what it said before.
        """
        if not (several() and leads()):
            return
        with suppress(InputError, RuntimeError):  # nobody is connected, or nobody is left
            store = _store()
            store.set(self._key("left"), _said(error))
            began_s = time.monotonic()
            while error is None and self._calls and time.monotonic() - began_s < LAST_CALL_S:
                if store.add(self._key(f"{self._calls} heard"), 0) >= count() - 1:
                    break
                _pause(began_s)

    def _key(self, what: int | str) -> str:
        return f"wattkeeper/{self._session}/{what}"

    def _heard(self, store: Any, key: str) -> Any:
        began_s = time.monotonic()
        left = self._key("left")
        try:
            while True:
                over = store.check([left])  # first: what it said before it left is there
                if store.check([key]):
                    said = store.get(key)
                    store.add(f"{key} heard", 1)
                    return pickle.loads(said)
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


def _store() -> Any:
    """Where the processes of this training leave word for each other."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise InputError(
            "this is one of several processes of a training, and they are not connected: call "
            "torch.distributed.init_process_group() before the session begins"
        )
    return torch.distributed.distributed_c10d._get_default_store()


def _said(error: BaseException | None) -> str:
    if error is None:
        return "left the session"
    if isinstance(error, Stopped | KeyboardInterrupt):
        return "was told to stop"
    text = str(error) if isinstance(error, WattkeeperError) else f"{type(error).__name__}: {error}"
    return f"failed: {text}"


class FollowerCoordinator:
    """The guide of a process that follows that of rank 0."""

    def begin(self) -> Assignment:
        """Orders that those of rank 0 replace."""
        return Assignment("", 1, 1, 1, 1, 1)

    def profiled(self, found: tuple[Measurement, ...]) -> float:
        """Never asked: it measures nothing."""
        return 0.0

    def epoch(self, report: EpochReport) -> bool:
        """Go on as long as the others do."""
        return True

    def alive(self) -> bool:
        """Go on as long as the others do."""
        return True

    def ended(self, outcome: AttemptResult) -> None:
        """Store nothing: that of rank 0 does."""
