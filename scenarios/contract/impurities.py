"""Finds where a policy file reads a clock or the entropy of the host."""

from __future__ import annotations

import datetime
import os
import random
import time
import uuid
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

CLOCK: Final = "reads a clock ({}): the time of the run is ctx.now_s"

ENTROPY: Final = "draws what nobody can draw again ({}): draw from ctx.rng(NAME)"

UNSEEDED: Final = "a generator without a seed"

CLOCKS: Final = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
    "clock_gettime",
    "clock_gettime_ns",
    "localtime",
    "gmtime",
    "asctime",
    "ctime",
    "strftime",
    "sleep",
)
"""Functions of the module `time`."""

READINGS: Final[Mapping[object, str]] = {
    **{getattr(time, name): CLOCK.format(f"time.{name}") for name in CLOCKS},
    os.times: CLOCK.format("os.times"),
    os.urandom: ENTROPY.format("os.urandom"),
    os.getrandom: ENTROPY.format("os.getrandom"),
    getattr(uuid, "_generate_time_safe", None): ENTROPY.format("uuid.uuid1"),
}
"""Functions of C, and what it means to call them."""

DATES: Final = ("now", "utcnow", "today")
"""Methods of dates that read the clock."""


class Impurities:
    """What a file read, while `profile` is the profile function of the interpreter.

    Args:
        path: The file, as its code names it.

    Attributes:
        found: Line and message of each reading.
    """

    def __init__(self, path: str) -> None:
        self.found: list[tuple[int, str]] = []
        self._path = path

    def profile(self, frame: FrameType, event: str, function: object) -> None:
        """See `sys.setprofile`; notes a call that reads, if a line of the file caused it."""
        message = None
        if event == "c_call":
            message = _explain_call(function, frame)
        elif event == "call" and frame.f_code is random.Random.__init__.__code__:
            is_seeded = frame.f_locals["x"] is not None
            is_system = isinstance(frame.f_locals["self"], random.SystemRandom)
            message = None if is_seeded or is_system else ENTROPY.format(UNSEEDED)
        if message is not None:
            line = self._line_of(frame)
            if line is not None:
                self.found.append((line, message))

    def _line_of(self, frame: FrameType | None) -> int | None:
        """The line of the file that led to a frame; None: none, an import, or a log's time."""
        while frame is not None and frame.f_code.co_filename != self._path:
            is_import = frame.f_code.co_filename.startswith("<frozen importlib")
            if is_import or frame.f_globals.get("__name__") == "logging":
                return None
            frame = frame.f_back
        return None if frame is None else frame.f_lineno


def _explain_call(function: Any, frame: FrameType) -> str | None:
    """What it means that a frame calls a function of C; None: nothing is read."""
    kind = getattr(function, "__self__", None)
    if isinstance(kind, type) and issubclass(kind, datetime.date) and function.__name__ in DATES:
        return CLOCK.format(f"{kind.__name__}.{function.__name__}")
    if function is os.urandom and frame.f_globals.get("__name__") == random.__name__:
        return ENTROPY.format(UNSEEDED)
    try:
        return READINGS.get(function)
    except TypeError:  # a method of a value without a hash
        return None
