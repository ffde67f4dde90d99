"""Nodes of a cluster that go down, give notice, are degraded and come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from wattkeeper.sim.engine.event_loop import DOWN, SIGNAL, UP, Callback, EventLoop, schedule_at

if TYPE_CHECKING:
    from collections.abc import Callable

Event = Literal["absent", "down", "up", "notice"]


class NodeChange(NamedTuple):
    """Something that happens to a node.

    Attributes:
        time_s: When, s since the start of the run.
        event: What: it goes down, is back, or announces that it will go down; `absent`: it is not
            there at first.
        node: Its number in the cluster.
        cause: Why; empty if not known.
        deadline_s: With `notice`: when it is expected to go down, s.
    """

    time_s: float
    event: Event
    node: int
    cause: str = ""
    deadline_s: float = 0.0


PRIORITIES: Final = {"absent": DOWN, "down": DOWN, "up": UP, "notice": SIGNAL}


class NodeChanges:
    """Lets changes of nodes happen, each scheduled when the one before it happened.

    Args:
        loop: The event loop of the run.
        changes: In the order of their time; they may be without an end.
        happen: Called with each of them.
        matters: Whether anything is left that a change can matter to.
    """

    def __init__(
        self,
        loop: EventLoop,
        changes: Iterator[NodeChange],
        happen: Callable[[NodeChange], None],
        matters: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._changes = changes
        self._happen = happen
        self._matters = matters
        self._next = next(changes, None)
        self._is_scheduled = False

    @property
    def is_over(self) -> bool:
        """Whether none will happen any more."""
        return self._next is None

    def go_on(self) -> None:
        """Schedule the next one, unless it is or nothing is left that it can matter to."""
        change = self._next
        if change is not None and not self._is_scheduled and self._matters():
            self._is_scheduled = True
            happens = Callback(self._let_happen, change)
            schedule_at(self._loop, change.time_s, happens, PRIORITIES[change.event])

    def _let_happen(self, change: NodeChange) -> None:
        self._is_scheduled = False
        self._next = next(self._changes, None)
        self._happen(change)
        self.go_on()
