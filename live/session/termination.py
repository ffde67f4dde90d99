"""How a training is told to stop: SIGTERM, at the end of a step where steps are seen."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

GRACE_S: Final = 10.0
"""A step that does not end in so many seconds after SIGTERM is cut, and nothing of it saved."""


class Stopped(BaseException):
    """Leaves the script's loop; the session that raised it takes it back.

    Attributes:
        whole: Whether no step was cut, so that the state can be saved.
    """

    def __init__(self, whole: bool) -> None:
        super().__init__("told to stop")
        self.whole = whole


class Terminations:
    """Turns SIGTERM into `Stopped`, in the main thread of the process that made it.

    Attributes:
        asked: Whether the signal came.
        stepping: Whether somebody asks at the end of each step; else the script is cut at once.
        closing: Whether it is too late to raise anything.
    """

    def __init__(self) -> None:
        self.asked = self.stepping = self.closing = False
        self._pid = os.getpid()
        self._before: Any = None
        self._timer: threading.Timer | None = None
        self._installed = threading.current_thread() is threading.main_thread()
        if self._installed:
            self._before = signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a worker that the script forked
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        again, self.asked = self.asked, True
        if self.closing:
            return
        if self.stepping and not again:
            self._timer = threading.Timer(GRACE_S, os.kill, (self._pid, signal.SIGTERM))
            self._timer.daemon = True
            self._timer.start()
            return
        raise Stopped(whole=False)

    def restore(self) -> None:
        """Put back who handled the signal before; if it came, let that one handle it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._installed:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def again(self) -> None:
        """Send the signal that came once more, now that all is put back."""
        if self.asked:
            os.kill(self._pid, signal.SIGTERM)
