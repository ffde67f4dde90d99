"""Stops a training on SIGTERM: at the end of a step, if the session sees steps."""

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

GRACE_S: Final = 10.0
"""A step that lasts longer after SIGTERM is interrupted, and its state is not saved, s."""


class Stopped(BaseException):
    """Leaves the script's loop; the session that raises it also catches it.

    Attributes:
        whole: Whether no step was interrupted, so that the state can be saved.
    """

    def __init__(self, whole: bool) -> None:
        super().__init__("told to stop")
        self.whole = whole


class Terminations:
    """Turns SIGTERM into `Stopped`, in the main thread of the process that made it.

    Attributes:
        requested: Whether the signal came.
        stepping: Whether the session checks at the end of each step; else it stops at once.
        raises: Whether `Stopped` is raised: not while the session begins or ends.
    """

    def __init__(self) -> None:
        self.requested = self.stepping = self.raises = False
        self._pid = os.getpid()
        self._before: Any = None
        self._timer: threading.Timer | None = None
        self._installed = threading.current_thread() is threading.main_thread()
        if self._installed:
            self._before = signal.signal(signal.SIGTERM, self._handle)

    @property
    def is_own(self) -> bool:
        """Whether this is the process that made it, not a worker that the script forked."""
        return os.getpid() == self._pid

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        again, self.requested = self.requested, True
        if not self.raises:
            return
        if self.stepping and not again:
            self._timer = threading.Timer(GRACE_S, os.kill, (self._pid, signal.SIGTERM))
            self._timer.daemon = True
            self._timer.start()
            return
        raise Stopped(whole=False)

    def begin(self) -> None:
        """Raise `Stopped` from now on, and at once if the signal came.

        Raises:
            Stopped: If it came.
        """
        self.raises = True
        if self.requested:
            raise Stopped(whole=False)

    def restore(self) -> None:
        """Restore the previous handler of the signal."""
        if self._timer is not None:
            self._timer.cancel()
        if self._installed:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def resend(self) -> None:
        """Send the signal again if it came, for the previous handler."""
        if self.requested:
            os.kill(self._pid, signal.SIGTERM)
