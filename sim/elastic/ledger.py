"""The ledger of an elastic training, simulated or live: what becomes of its steps and its time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["lost", "kept", "carried", "open"]
"""What becomes of steps that are not committed: all are `lost`; those that are finished are `kept`,
as if they were; all go over into the next shape (`carried`); or none is, since nothing happens any
more (`open`)."""


@dataclass
class Spent:
    """What a shape of an elastic training did.

    Attributes:
        pause_s: Time in pauses, s.
        steps_s: Time in steps, s.
        slow_s: Of that, what slow nodes added, s.
        lost_s: Of `steps_s`, in steps that were lost, s.
        lost_slow_s: Of that, what slow nodes added, s.
        open_s: Of `steps_s`, in steps that are neither committed nor lost when nothing happens any
            more, s.
        writes: Begin and end of each write of a checkpoint, s.
        write_slow_s: Of their time, what slow nodes added, s.
        committed: Steps that were committed, those of earlier shapes that it went on with, too;
            without those that were committed before and are undone.
        lost_steps: Finished steps that were lost, likewise.
        ended_step: Whether a step ended in it.
        carried_s: Of `steps_s`, in finished steps that go over into the next shape, s.
        part_s: Of `steps_s`, in the step under way that goes over, s.
        carried_slow_s: Of both, what slow nodes added, s.
    """

    pause_s: float = 0.0
    steps_s: float = 0.0
    slow_s: float = 0.0
    lost_s: float = 0.0
    lost_slow_s: float = 0.0
    open_s: float = 0.0
    writes: list[tuple[float, float]] = field(default_factory=list)
    write_slow_s: float = 0.0
    committed: int = 0
    lost_steps: int = 0
    ended_step: bool = False
    carried_s: float = 0.0
    part_s: float = 0.0
    carried_slow_s: float = 0.0

    @property
    def write_s(self) -> float:
        """Time in writes of checkpoints, s."""
        return math.fsum(to_s - from_s for from_s, to_s in self.writes)


class StepLedger:
    """Counts the steps of a training: at any time, a finished one is in one of three numbers.

    Args:
        wanted: Steps after which the training ends; infinite: it does not end by itself.

    Attributes:
        wanted: Steps after which the training ends.
        committed: Steps that no loss of nodes undoes.
        uncommitted: Finished steps since, with which the training goes on.
        lost: Finished steps that were lost.
        fruitless: Losses in a row without a commit; live, breaks of a group.
        spent: What the present shape did.
        steps_s: Time of the present shape in steps that are not committed, s at full pace.
        part_s: Its time in the step under way, s at full pace, where that is told apart.
        share: Share of the step under way that is done, by earlier shapes, too.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self.committed = self.uncommitted = self.lost = 0
        self.fruitless = 0
        self.spent = Spent()
        self.steps_s = self.part_s = self.share = 0.0

    @property
    def steps(self) -> int:
        """Finished steps of the state with which the training goes on."""
        return self.committed + self.uncommitted

    def finish(self, steps: int = 1) -> None:
        """Count steps that are finished now."""
        self.uncommitted += steps
        self.spent.ended_step |= steps > 0

    def commit(self, steps: int | None = None) -> None:
        """Commit the first of the steps that are not; None: all of them."""
        if steps is None:
            steps = self.uncommitted
        if steps:
            self.uncommitted -= steps
            self.committed += steps
            self.spent.committed += steps
            self.fruitless = 0
        self.steps_s = 0.0

    def lose(self) -> int:
        """Go on without what is not committed; returns how many finished steps that is."""
        steps, self.uncommitted, self.share = self.uncommitted, 0, 0.0
        self.lost += steps
        return steps

    def go_on_from(self, steps: int) -> None:
        """Go on from a state after so many steps, all of them committed from now on.

        They are more than are known where nobody was left to tell that they are finished, and fewer
        where nobody has the state after those that were committed.
        """
        undone = max(0, self.committed - steps)
        self.lost += undone
        self.spent.lost_steps += undone
        self.spent.committed += steps - self.committed
        self.committed = steps

    def close_shape(self, fate: Fate, took_s: Callable[[float], float] = float) -> Spent:
        """End the present shape; returns what it did.

        Args:
            fate: What becomes of steps that are not committed.
            took_s: How long its last steps took, whose time at full pace is given, s.
        """
        if fate == "kept":
            self.commit()
        spent, steps_s, part_s = self.spent, self.steps_s, self.part_s
        span_s = took_s(part_s + steps_s)
        if fate == "carried":
            spent.part_s = took_s(part_s)
            spent.carried_s = span_s - spent.part_s
            spent.carried_slow_s = span_s - part_s - steps_s
        elif fate == "open":
            spent.open_s = span_s
        else:
            spent.lost_s = span_s
            spent.lost_slow_s = span_s - (part_s + steps_s)
            spent.lost_steps += self.lose()
        self.spent, self.steps_s, self.part_s = Spent(), 0.0, 0.0
        return spent
