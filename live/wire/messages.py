"""The messages between a session and the coordinator that decides for it.

A stand-alone session (`from wattkeeper.live import Session` in a script) asks the policies in its
own process; what they learnt is in a store. A session that a live run started asks the controller
over a socket. The session works the same with both.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol

from pydantic import Field, PlainValidator, TypeAdapter

from wattkeeper.policies.points.views import Measurement, Slice

LARGEST: Final = 1e300
"""Largest amount, s, J or W: sums of such amounts stay finite."""

Count = Annotated[int, Field(strict=True, ge=0, le=1 << 53)]
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Amount = Annotated[float, Field(strict=True, ge=0, le=LARGEST)]
Metric = Annotated[float, Field(strict=True)]
"""Those of diverged trainings are not finite."""
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(max_length=4096)]
"""Longer than any text of a session: messages of failed scripts are cut at 500 characters."""

# Compiled classes do not tell pydantic their types.
_SLICE: Final = TypeAdapter[Any](tuple[float, int | None, int, int, float])
_POINTS: Final = TypeAdapter[Any](
    Annotated[
        list[tuple[Amount, Amount, Number, Count, Count, Amount, Number]], Field(max_length=10_000)
    ]
)


def _read_slice(value: Any) -> Slice | None:
    if value is None or isinstance(value, Slice):
        return value
    return Slice(*_SLICE.validate_python(value))


def _read_measurements(value: Any) -> tuple[Measurement, ...]:
    return tuple(Measurement(*point) for point in _POINTS.validate_python(value))


AnySlice = Annotated[Slice | None, PlainValidator(_read_slice)]
Measurements = Annotated[tuple[Measurement, ...], PlainValidator(_read_measurements)]

EnergySource = Literal["counter", "integrated", "synthetic", "absent"]
"""Source of an energy: the device's counter; its power integrated over time; a synthetic device;
none."""

SessionCause = Literal["reached", "epochs", "bound", "stopped", "left", "failed"]
"""Why an attempt ended, as far as its session can report it."""
Cause = Literal[SessionCause, "ended", "crashed", "hung", "silent"]
"""Why an attempt ended: it reached its target; did all its epochs; would have crossed its cost
bound; was told to stop; its script left the loop on its own; its script failed; `Tune` ended it;
its process died; it stopped reporting; it never did. Without a target, who left is done."""


class Assignment(NamedTuple):
    """What an attempt shall do.

    Attributes:
        job_id: The job.
        recurrence: 1 for the first of its group, and so on.
        attempt: 1 for the first try of this job, and so on.
        batch_size: Global batch size, samples.
        default_batch_size: Batch size without a policy; the script's learning rate is for it.
        max_epochs: It ends after so many.
        power_limit_w: Of each GPU, W; None: as it is.
        profile_w: Power limits to be measured first, in this order; the coordinator then chooses.
        cost_bound: It stops before the epoch that would make it cost more, J.
        eta: Weighs energy and time in the cost (`wattkeeper.policies.profile.Objective`).
        max_power_w: Sum of the largest limits of all GPUs, by which the cost weighs time, W.
        target: Value of the metric that ends it; None: it does all its epochs.
        higher_is_better: Whether the target is reached from below.
        checkpoint: File of its state, saved when it is stopped and restored when it resumes.
        epochs_done: Epochs done before it was stopped.
        time_done_s: Time of these, s.
        energy_done_j: Energy of these; None where nothing measures it.
        lease_s: It is hung if it does not report for so long, s of the host.
        model: Name of the model that the job trains; None if the job names none.
        zoo: Folder of the zoo that the model starts from and enters; None: what the script says.
        parent: Name of the model in `zoo` that it starts from; None: it starts from scratch.
        retunes: Whether its power limit may change while it trains.
        slice: The slice to be trained first; the coordinator then chooses. None: none.
        probes: Whether the coordinator is told of the target, since slices of other batch sizes may
            follow it.
        samples_per_epoch: Samples of an epoch; 0 if not known.
        reports: Number of profile reports that were made of the attempt before.
    """

    job_id: str
    recurrence: int
    attempt: int
    batch_size: int
    default_batch_size: int
    max_epochs: int
    power_limit_w: float | None = None
    profile_w: tuple[float, ...] = ()
    cost_bound: float = math.inf
    eta: float = 0.5
    max_power_w: float = 0.0
    target: float | None = None
    higher_is_better: bool = True
    checkpoint: str | None = None
    epochs_done: int = 0
    time_done_s: float = 0.0
    energy_done_j: float | None = None
    lease_s: float = 60.0
    model: str | None = None
    zoo: str | None = None
    parent: str | None = None
    retunes: bool = False
    slice: AnySlice = None
    probes: bool = False
    samples_per_epoch: float = 0.0
    reports: int = 0


class Begun(NamedTuple):
    """A session has begun, and asks for its assignment."""


class Alive(NamedTuple):
    """A session renews its lease."""


class SleepUntil(NamedTuple):
    """A session sleeps until a time, another power limit, or until its training shall stop.

    Attributes:
        until_s: The time of the run, s.
        power_limit_w: The limit that it knows, W; None if it knows none.
    """

    until_s: Amount
    power_limit_w: Number | None


class KnobsAwaited(NamedTuple):
    """A session waits for another power limit, or until its training shall stop.

    Attributes:
        power_limit_w: The limit that it knows, W; None if it knows none.
    """

    power_limit_w: Number | None


class ProfileReport(NamedTuple):
    """What an attempt measured, or that it reached its target.

    Attributes:
        measurements: Of `Assignment.profile_w`, or of the slice that was asked for last; empty when
            it reached its target.
        report: Its number in the attempt, from 0.
        time_s: Seconds since the beginning of its first epoch, as in `EpochReport`.
        energy_j: Energy of that; None where nothing measures it.
        reached: Whether it has reached its target.
    """

    measurements: Measurements
    report: Count
    time_s: Amount
    energy_j: Number | None
    reached: Flag = False


class EpochReport(NamedTuple):
    """The state of an attempt after an epoch.

    Attributes:
        epoch: The number of the epoch, from 1.
        metric: The metric that the script reported; None if it reported none.
        time_s: Seconds from the beginning of its first epoch to the end of this one, profiling
            included, those between a stop and resuming left out.
        energy_j: Energy of that; None where nothing measures it.
        is_last: Whether no other one follows, whatever the coordinator replies.
    """

    epoch: Count
    metric: Metric | None
    time_s: Amount
    energy_j: Number | None
    is_last: Flag = False


class AttemptResult(NamedTuple):
    """The end of an attempt.

    Attributes:
        cause: Why it ended.
        epochs: Epochs done; of one that was stopped, those after which it can resume.
        time_s: Seconds of training.
        energy_j: Energy of that; None where nothing measures it.
        power_limit_w: The limit it ran at in the end; None where it is not known.
        limit_set: Whether the limit that was asked for was in force; False where it was not
            allowed.
        how: Where the energy is from.
        message: The last message of a failed script.
    """

    cause: Cause
    epochs: Count
    time_s: Amount
    energy_j: Number | None
    power_limit_w: Number | None = None
    limit_set: Flag = True
    how: EnergySource = "absent"
    message: Text = ""


Message = Alive | Begun | EpochReport | AttemptResult | KnobsAwaited | ProfileReport | SleepUntil
"""What a session reports or asks."""

MESSAGES: Final[Mapping[str, type[Any]]] = {
    "alive": Alive,
    "begun": Begun,
    "ended": AttemptResult,
    "epoch": EpochReport,
    "knobs": KnobsAwaited,
    "profiled": ProfileReport,
    "sleep": SleepUntil,
}
"""The class of each message, by the kind that its JSON states."""


@cache
def _adapter(message: Any) -> TypeAdapter[Any]:
    return TypeAdapter(message)


def read_message(message: Any, fields: Mapping[str, Any]) -> Any:
    """A message of a class from the members of its JSON object; others are ignored.

    Raises:
        ValueError: If one is missing, has a wrong type, or is out of range.
    """
    values = {name: fields[name] for name in message._fields if name in fields}
    return _adapter(message).validate_python(values)


class Lost(NamedTuple):
    """A process has exited, or it reported nothing in time.

    Attributes:
        cause: Why it is lost, as in `AttemptResult`.
        code: Its exit code; None if it is not known, or it has not exited.
    """

    cause: Literal["crashed", "hung", "silent"]
    code: int | None = None


class Broken(NamedTuple):
    """The server of the sessions failed, with an error."""

    error: str


class Coordinator(Protocol):
    """Decides for a session.

    Every method raises `wattkeeper.policies.errors.EnvironmentLacks` if the controller, or the
    store, cannot be reached for longer than the lease.
    """

    def begin(self) -> Assignment:
        """Begin the attempt, and ask what it shall do."""

    def report_profile(self, report: ProfileReport) -> float | Slice | None:
        """Report what was measured; the power limit from now on (W), or the slice to train now.

        Once the target is reached: a slice of another batch size, or None if none follows.
        """

    def report_epoch(self, report: EpochReport) -> bool:
        """Report an epoch; whether the training continues."""

    def renew_lease(self) -> bool:
        """Renew the lease, from a thread; whether the training continues."""

    def end(self, outcome: AttemptResult) -> None:
        """Report the end; a second call for the same attempt changes nothing."""
