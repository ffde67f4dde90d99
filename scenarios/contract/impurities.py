"""Finds where a policy file reads a clock or the entropy of the host."""

from __future__ import annotations

import datetime
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

CLOCKS: Final = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
    "process_time", "process_time_ns", "localtime", "gmtime", "ctime", "strftime", "sleep",
)  # fmt: skip
"""Functions of the module `time`."""

CLOCK: Final = "reads a clock ({}): the time of the run is ctx.now_s"

ENTROPY: Final = "draws what nobody can draw again ({}): draw from ctx.rng(NAME)"


class Impurities:
    """What a file read, while `watched`.

    Args:
        path: The file, as its code names it.

    Attributes:
        found: Line and message of each reading.
    """

    def __init__(self, path: str) -> None:
        self.found: list[tuple[int, str]] = []
        self._path = path

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, readings are noted. The file is executed inside, too: it may import them."""
        patches: list[Any] = [
            mock.patch.object(time, name, self._noting(getattr(time, name), CLOCK, f"time.{name}"))
            for name in CLOCKS
        ]
        patches += [
            mock.patch.object(datetime, "datetime", self._dated(datetime.datetime)),
            mock.patch.object(datetime, "date", self._dated(datetime.date)),
            mock.patch.object(os, "urandom", self._noting(os.urandom, ENTROPY, "os.urandom")),
            mock.patch.object(
                random, "_urandom", self._noting(os.urandom, ENTROPY, "a generator without a seed")
            ),
        ]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()

    def _note(self, message: str, name: str) -> None:
        """Note a reading, if a line of the file caused it."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self._path:
            if frame.f_globals.get("__name__") == "logging":
                return
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            self.found.append((frame.f_lineno, message.format(name)))

    def _noting(self, function: Callable[..., Any], message: str, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._note(message, name)
            return function(*arguments, **named)

        return call

    def _dated(self, kind: type[Any]) -> type[Any]:
        """The same class of dates, whose methods that read the clock note it."""
        methods = {
            name: classmethod(self._noting_method(name, kind))
            for name in ("now", "utcnow", "today") if hasattr(kind, name)
        }  # fmt: skip
        return type(kind.__name__, (kind,), methods)

    def _noting_method(self, name: str, kind: type[Any]) -> Callable[..., Any]:
        def call(_: type[Any], *arguments: Any, **named: Any) -> Any:
            self._note(CLOCK, f"{kind.__name__}.{name}")
            return getattr(kind, name)(*arguments, **named)

        return call
