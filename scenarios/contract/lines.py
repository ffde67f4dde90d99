"""Calls of a policy of a file, with the lines of the file that they execute."""

from __future__ import annotations

import gc
import inspect
import random
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.policies.failures import describe_error
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.contract.breach import ContractBreach
from wattkeeper.scenarios.contract.impurities import Impurities
from wattkeeper.scenarios.contract.watch import CHANGED, Watch, show

Probe = Callable[[], object]

GLOBAL_DRAW: Final = (
    "draws from a random generator of the whole process: draw from ctx.rng(NAME), and say "
    "draws: ClassVar[bool] = True in the config"
)


MOST_LINES: Final = 1_000_000
"""Of one call."""

MOST_LOOKS: Final = 20_000
"""Lines of one call after which it is looked at what changed; then only at the end."""

MOST_SECONDS: Final = 60.0
"""Of one call: what stays in one line, or leaves the file, passes no further line."""

ENDLESS: Final = "runs for more than {}: does it ever end?"


class _Endless(BaseException):
    """Ends a call that runs for too long, and says for how long; policies do not catch it."""


class LineWatch(Watch):
    """Calls the methods of a policy, and notes what its file does that it must not, by line.

    Args:
        path: The file, as its code names it.
        impurities: What the file reads of clocks and entropy.
        called: Takes the functions of the file that are called.
        looks: Whether it looks after each line at what that changed, which takes its time.

    Attributes:
        lines: Line at which the last call of each method ended.
        noted: Method, by line and message.
    """

    def __init__(
        self, path: str, impurities: Impurities, called: set[CodeType], *, looks: bool = True
    ) -> None:
        self.lines: dict[str, int] = {}
        self.noted: dict[tuple[int, str], str] = {}
        self._path = path
        self._impurities = impurities
        self._called = called
        self._looks = looks
        self._name = ""
        self._line = 0
        self._count = 0
        self._probes: dict[str, Probe] = {}
        self._before: dict[str, object] = {}

    def call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method.

        Raises:
            ContractBreach: If it raises.
            WattkeeperError: Where the method raises one.
        """
        self._name, self._line, self._count = name, 0, 0
        if self._looks:
            self._probes = {CHANGED: lambda: show(arguments), GLOBAL_DRAW: _global_draws}
        self._before = {what: probe() for what, probe in self._probes.items()}
        self._impurities.found.clear()
        outer = sys.gettrace(), sys.getprofile()
        collects = gc.isenabled()
        gc.disable()  # what others do at a collection, such as timing it, is none of the policy's
        sys.settrace(self._enter)
        sys.setprofile(self._impurities.profile)
        try:
            with _limit_time():
                return method(*arguments)
        except (ContractBreach, WattkeeperError):
            raise
        except _Endless as endless:
            raise ContractBreach(ENDLESS.format(endless), name, self._line or None) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ContractBreach(f"raised {_describe(error)}", name, self._line or None) from None
        finally:
            sys.settrace(outer[0])
            sys.setprofile(outer[1])
            if collects:
                gc.enable()
            self._look()
            if self._line:
                self.lines[name] = self._line
            for line, what in self._impurities.found:
                self.noted.setdefault((line, what), name)

    def refuse(self, message: str, method: str = "") -> None:
        """Note what the present line did."""
        self.noted.setdefault((self._line, message), method or self._name)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        self._called.add(frame.f_code)
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Before a line, and where a function ends: what did the line before it change?

        Raises:
            _Endless: If there were too many.
        """
        if event in ("line", "return"):
            self._count += 1
            if self._count <= MOST_LOOKS:
                self._look()
            self._line = frame.f_lineno
            if self._count > MOST_LINES:
                raise _Endless(f"{MOST_LINES:,} lines of the file")
        return self._step

    def _look(self) -> None:
        for what, probe in self._probes.items():
            now = probe()
            if now != self._before[what]:
                self._before[what] = now
                self.refuse(what)


def find_uncalled(
    policy: type, base: type, path: str, called: Collection[CodeType]
) -> Iterator[tuple[int, str]]:
    """Line and message of each public method of a policy that is its own, and that nobody called.

    Args:
        policy: The class of the policy.
        base: The class of its decision point.
        path: The file, as its code names it.
        called: The functions of the file that were called.
    """
    known = [name for name in dir(base) if not name.startswith("_")]
    for name in dir(policy):
        function = inspect.unwrap(getattr(policy, name)) if name not in known else None
        code = getattr(function, "__code__", None)
        if name.startswith("_") or code is None or code.co_filename != path or code in called:
            continue
        meant = did_you_mean(name, known)
        yield code.co_firstlineno, f"nothing called its method {name!r}{meant}"


@contextmanager
def _limit_time() -> Iterator[None]:
    """Interrupt Python code that runs for longer than `MOST_SECONDS`; in the main thread only.

    Raises:
        _Endless: Then.
    """

    def interrupt(*_: object) -> None:
        raise _Endless(f"{MOST_SECONDS:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _global_draws() -> object:
    numbers: Any = np.random.get_state()
    return random.getstate(), numbers[1].tobytes(), numbers[2:]


def _describe(error: BaseException) -> str:
    text = describe_error(error)
    fixed = (
        "read-only",
        "not writable",
        "can't set attribute",
        "does not support item",
        "setter",
        "is frozen",
    )
    hint = "; what a policy is shown cannot be changed" if any(w in text for w in fixed) else ""
    return f"{text}{hint}"
