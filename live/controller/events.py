"""The external events of a live run: what its processes report and ask, and values that arrive."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from wattkeeper.live.wire.messages import MESSAGES, Broken, Lost, Message


class Exited(NamedTuple):
    """A process has exited; its GPUs are free."""


class Halted(NamedTuple):
    """The run was interrupted: all trainings save their state."""


class Woken(NamedTuple):
    """A process was told the time at the end of its sleep.

    Where knobs change, the log has the time: a controller that resumes the run must not put
    its clock back to before a change that the process knows.
    """


class SignalArrived(NamedTuple):
    """The value of a signal arrived.

    Attributes:
        name: The signal.
        since_s: When its slot begins, s of the run.
        value: The value.
        fallback: Whether it stands in for one that did not come in time.
    """

    name: str
    since_s: float
    value: float
    fallback: bool


Event = Message | Lost | Exited | Broken | Halted | Woken | SignalArrived

LOGGED: Final[Mapping[str, type[Any]]] = {
    **MESSAGES,
    "halt": Halted,
    "lost": Lost,
    "signal": SignalArrived,
    "woken": Woken,
}
"""The class of each event, by the kind that a log states."""

KINDS: Final[Mapping[type[Any], str]] = {event: kind for kind, event in LOGGED.items()}


class ExternalEvent(NamedTuple):
    """An event from outside, and where it comes from.

    Attributes:
        time_s: When it came, s.
        job_id: The job; empty if it concerns none.
        attempt: Number of its attempt.
        run: Id of the attempt's process; a stopped attempt resumes in another one.
        event: What happened.
        ticket: The request that a reply belongs to; None if none is expected.
        rank: Rank of the process in its training; only rank 0 reports.
    """

    time_s: float
    job_id: str
    attempt: int
    run: str
    event: Event
    ticket: Any = None
    rank: int = 0
