"""Follows a signal while its values may matter to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wattkeeper.sim.engine.board import IdleCount, JobBoard
from wattkeeper.sim.kernel.loop import NEVER, SIGNAL, Callback, EventLoop, schedule_at
from wattkeeper.sim.kernel.signals import SignalSource

if TYPE_CHECKING:
    from wattkeeper.policies.signals import SignalView


class SignalChanges:
    """The changes of one signal.

    Args:
        loop: The event loop of the run.
        board: Says whether anything is left that a change can matter to.
        signal: The signal.
    """

    def __init__(self, loop: EventLoop, board: JobBoard, signal: SignalSource) -> None:
        self._loop = loop
        self._board = board
        self._signal = signal
        self._view: SignalView = signal.view(loop)
        self._idle_changes = IdleCount(board)
        self._call: Callable[[], object]

    @property
    def value(self) -> float:
        """Its present value."""
        return self._view.value

    def follow(self, call: Callable[[], object]) -> None:
        """Call a function at each change."""
        self._call = call
        self._schedule()

    def _schedule(self) -> None:
        is_beyond = self._idle_changes.is_beyond()
        if self._board.has_work and not is_beyond:
            schedule_change(self._loop, self._signal, Callback(self._happen))

    def _happen(self, _: object) -> None:
        self._call()
        self._schedule()


def schedule_change(loop: EventLoop, signal: SignalSource, event: Callback) -> None:
    """Let an event happen when a signal has its next value, if ever."""
    change_s = signal.next_change_s(loop.now_s)
    if change_s != NEVER:
        schedule_at(loop, change_s, event, SIGNAL)
