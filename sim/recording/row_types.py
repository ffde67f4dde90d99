"""Kinds of rows that a run of the cluster engine records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mypy_extensions import i32, u8

from wattkeeper.sim.attempts.decided import SliceTotals
from wattkeeper.sim.kernel.rows import ABSENT

REACHED: Final = 1
EARLY: Final = 2
PROFILED: Final = 4
REPLAYED: Final = 8
"""Flags of an attempt; `REPLAYED`: from a profile."""


class AttemptRow(NamedTuple):
    """An attempt that ended.

    Attributes:
        number: `Job.number` of its job.
        begun_s: When it first held its GPUs, s.
        ended_s: When it released them, s.
        energy_j: Energy of training, with overheads, J.
        time_s: Time of training, s.
        cost: Its cost, J.
        power: Power above that of idle GPUs, in `UNITS_PER_WATT`; each change of it during the
            attempt is a `PowerChangeRow`.
        where: Index of its last placement in the journal.
    """

    number: int
    begun_s: float
    ended_s: float
    energy_j: float
    time_s: float
    cost: float
    power: int
    where: i32


class TrainingRow(NamedTuple):
    """The training of an attempt, if it is not of its recorded duration alone.

    Attributes:
        attempt: Number of the attempt of its job, from 1.
        batch_size: Global batch size.
        power_limit_w: Last power limit, W; NaN: none.
        epochs: Completed epochs.
        flags: `REACHED`, `EARLY`, `PROFILED`, `REPLAYED`.
    """

    attempt: i32 = 1
    batch_size: int = ABSENT
    power_limit_w: float = math.nan
    epochs: int = ABSENT
    flags: u8 = REACHED


class ClockRow(NamedTuple):
    """An attempt that ended with a locked clock, MHz."""

    clock_mhz: i32 = ABSENT


class DelayRow(NamedTuple):
    """An attempt that was preempted, or held its GPUs without training: for how long, s."""

    overhead_s: float = 0.0
    preemptions: i32 = 0


class RetuneRow(NamedTuple):
    """How often `Tune` changed the knobs of an attempt that runs, and how long it paused it, s."""

    retunes: i32 = 0
    tune_paused_s: float = 0.0


class DrawRow(NamedTuple):
    """A span of even power of an attempt that `Tune` is asked about; it has any number of them."""

    from_s: float
    to_s: float
    energy_j: float

    @classmethod
    def spans(cls, draws: Sequence[tuple[float, float]], until_s: float) -> Iterator[DrawRow]:
        """The spans until a time (s), given the time (s) and the new power (W) of each change."""
        for (from_s, power_w), (to_s, _) in pairwise([*draws, (until_s, 0.0)]):
            if to_s > from_s and power_w > 0:
                yield cls(from_s, to_s, power_w * (to_s - from_s))


class SliceRow(NamedTuple):
    """The slices of an attempt: their number, time (s) and energy (J).

    Of those of other batch sizes, whose weights were thrown away, time and energy are discarded.
    """

    slices: i32 = 0
    slice_time_s: float = 0.0
    slice_energy_j: float = 0.0
    discarded_time_s: float = 0.0
    discarded_energy_j: float = 0.0

    @classmethod
    def scaled(cls, totals: SliceTotals, scale: float) -> SliceRow:
        """The totals of an attempt, with times and energies scaled."""
        slices, *amounts = totals
        return cls(slices, *(amount * scale for amount in amounts))


class LossRow(NamedTuple):
    """An attempt that ended with a lost node: unsaved training, and energy of all its GPUs."""

    lost_node: i32 = ABSENT
    lost_time_s: float = 0.0
    lost_energy_j: float = 0.0


class SlowRow(NamedTuple):
    """An attempt whose training slow nodes prolonged, s."""

    slow_s: float = 0.0


DETAILS: Final[tuple[type[Any], ...]] = (
    TrainingRow,
    DelayRow,
    ClockRow,
    RetuneRow,
    SliceRow,
    LossRow,
    SlowRow,
)
"""Kinds of rows about an attempt whose fields are columns of attempts, with their defaults."""


class SizeRow(NamedTuple):
    """An attempt that held another number of GPUs than its job asked for."""

    held_gpus: i32


class PauseRow(NamedTuple):
    """A job, by `Job.number`, that was preempted at `from_s` and resumed at `to_s`, s."""

    number: int
    from_s: float
    to_s: float


class PowerChangeRow(NamedTuple):
    """A change of power during an attempt of a job, by `Job.number`, in `UNITS_PER_WATT`."""

    number: int
    time_s: float
    change: int


class HoldRow(NamedTuple):
    """A time for which an attempt held GPUs without training, and what these drew idle."""

    from_s: float
    to_s: float
    power: int


class SleepRow(NamedTuple):
    """The sleep of a node, s, and the power of its GPUs without a job, in `UNITS_PER_WATT`.

    `to_s` is infinite if it does not wake any more.
    """

    from_s: float
    to_s: float
    awake: int
    asleep: int


class NodeRow(NamedTuple):
    """What happened to a node: the fields of `schemas.NODES`, NaN where they are null."""

    time_s: float
    node: int
    event: str
    cause: str
    deadline_s: float
    jobs: int
    lost_gpu_s: float
    lost_energy_j: float
    factor: float


class ShapeRow(NamedTuple):
    """What an elastic job did in one shape, an attempt: the fields of `schemas.SHAPES`.

    Attributes:
        number: `Job.number` of the job.
        copied_bytes: NaN where it is null.
        redundant_share: Share of the time of its steps in redundant computation.
    """

    number: int
    attempt: int
    time_s: float
    until_s: float
    moment: str
    nodes: int
    samples_per_s: float
    pause_s: float
    steps_s: float
    write_s: float
    lost_s: float
    open_s: float
    samples: float
    lost_samples: float
    from_storage: bool
    copied_bytes: float
    redundant_share: float
