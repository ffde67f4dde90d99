"""Features of a world: each subscribes to the moments at which it acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from wattkeeper.sim.attempts.attempt import Attempt, Execution

if TYPE_CHECKING:
    from wattkeeper.policies.points.views import Configuration, Knobs, Start


@mypyc_attr(allow_interpreted_subclasses=True)
class Subscriber:
    """A feature of a world, which is called at the moments whose methods it overrides."""

    def begin_run(self) -> None:
        """Called when the run begins."""

    def end_run(self) -> None:
        """Called when nothing is left to happen."""

    def share_power(self) -> None:
        """Called first in a scheduling pass: what others may use is shared out."""

    def begin_pass(self) -> None:
        """Called in a scheduling pass before `Select` is asked."""

    def end_pass(self) -> None:
        """Called in a scheduling pass after `Select` was asked."""

    def prepare(
        self, execution: Execution, start: Start, configuration: Configuration, knobs: Knobs
    ) -> None:
        """Called when policies have decided on an attempt, which is about to begin."""

    def repeat(self, execution: Execution) -> None:
        """Called when an attempt that repeats one that an accident ended is about to begin."""

    def requeue_lost(self, execution: Execution) -> None:
        """Called when a job, whose attempt a lost node ended, waits for its next attempt."""

    def resume_lost(self, execution: Execution) -> float:
        """Called when the attempt that follows one which a lost node ended gets its GPUs.

        Returns:
            Time until it can begin, s.
        """
        return 0.0

    def begin(self, execution: Execution) -> None:
        """Called when an attempt is about to begin or to resume on GPUs that it holds."""

    def holds_back(self, execution: Execution) -> bool:
        """Whether it takes an attempt that holds GPUs over, instead of letting it train."""
        return False

    def draw(self, attempt: Attempt, power_w: float, settled: bool) -> None:
        """Called when an attempt draws another power, W; see `Listener.draws`."""

    def release(self, attempt: Attempt) -> None:
        """Called when an attempt has released its GPUs and power."""

    def book(self, attempt: Attempt, ended_s: float) -> None:
        """Called when an attempt that ended at a time (s) was booked."""

    def notice_node(self, node: int) -> None:
        """Called when a node announces that it will go down."""

    def lose_node(self, node: int, was_free: bool) -> None:
        """Called when a node is down; `was_free`: no job was on it, and jobs could start there."""


MOMENTS: Final = tuple([name for name in vars(Subscriber) if not name.startswith("_")])
"""The moments of a run, by the methods of `Subscriber`."""


class Moments:
    """The subscribers of each moment of a run, in the order in which they were added.

    Attributes are named as the methods of `Subscriber`.
    """

    def __init__(self) -> None:
        self.begin_run: list[Subscriber] = []
        self.end_run: list[Subscriber] = []
        self.share_power: list[Subscriber] = []
        self.begin_pass: list[Subscriber] = []
        self.end_pass: list[Subscriber] = []
        self.prepare: list[Subscriber] = []
        self.repeat: list[Subscriber] = []
        self.requeue_lost: list[Subscriber] = []
        self.resume_lost: list[Subscriber] = []
        self.begin: list[Subscriber] = []
        self.holds_back: list[Subscriber] = []
        self.draw: list[Subscriber] = []
        self.release: list[Subscriber] = []
        self.book: list[Subscriber] = []
        self.notice_node: list[Subscriber] = []
        self.lose_node: list[Subscriber] = []

    def clear(self) -> None:
        """Call no part any more."""
        for moment in MOMENTS:
            getattr(self, moment).clear()

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber to the moments whose methods its class overrides."""
        for moment in MOMENTS:
            if getattr(type(subscriber), moment) is not getattr(Subscriber, moment):
                getattr(self, moment).append(subscriber)
