"""Asks `Tune` about running attempts when a signal has another value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattkeeper.sim.attempts.attempt import Execution
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.retuner import Retuner
from wattkeeper.sim.engine.signal_changes import schedule_change
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.sim.kernel.signals import SignalSource


class TuneSignals(Subscriber):
    """Follows signals while any attempt can be asked about them.

    Args:
        core: What the parts of the world share.
        signals: The signals of the run.
        names: Those that `Tune` follows.
        retuner: Asks it.
    """

    def __init__(
        self,
        core: Core,
        signals: Mapping[str, SignalSource],
        names: Sequence[str],
        retuner: Retuner,
    ) -> None:
        self._loop = core.loop
        self._board = core.board
        self._signals = signals
        self._names = names
        self._retuner = retuner
        self._unfollowed: list[str] = []

    def begin_run(self) -> None:
        """Follow the signals."""
        for name in self._names:
            self._follow(name)

    def begin(self, execution: Execution) -> None:
        """Follow signals again that nothing could be asked about."""
        unfollowed, self._unfollowed = self._unfollowed, []
        for name in unfollowed:
            self._schedule(name)

    def _follow(self, name: str) -> None:
        if self._board.is_idle and not self._board.suspended:
            self._unfollowed.append(name)  # until an attempt begins, if any does
        else:
            self._schedule(name)

    def _schedule(self, name: str) -> None:
        schedule_change(self._loop, self._signals[name], Callback(self._change, name))

    def _change(self, name: str) -> None:
        self._retuner.ask_all("signal")
        self._follow(name)
