"""What an attempt of an elastic job did, and what becomes of steps that are not committed."""

from __future__ import annotations

from typing import Literal, NamedTuple

Fate = Literal["lost", "kept", "carried", "open"]
"""What becomes of steps that are not committed: all are `lost`; those that are finished are `kept`,
as if they were; all go over into the next shape (`carried`); or none is, since nothing happens any
more (`open`)."""


class Spent(NamedTuple):
    """What an attempt of an elastic job did.

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
        committed: Steps that were committed, those of earlier attempts that it went on with, too.
        lost_steps: Finished steps that were lost, likewise.
        finished: Whether a step ended in it.
        carried_s: Of `steps_s`, in finished steps that go over into the next attempt, s.
        part_s: Of `steps_s`, in the step under way that goes over, s.
        carried_slow_s: Of both, what slow nodes added, s.
    """

    pause_s: float = 0.0
    steps_s: float = 0.0
    slow_s: float = 0.0
    lost_s: float = 0.0
    lost_slow_s: float = 0.0
    open_s: float = 0.0
    writes: tuple[tuple[float, float], ...] = ()
    write_slow_s: float = 0.0
    committed: int = 0
    lost_steps: int = 0
    finished: bool = False
    carried_s: float = 0.0
    part_s: float = 0.0
    carried_slow_s: float = 0.0
