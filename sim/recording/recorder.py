"""Records of a run: growing columns of plain numbers."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.sim.attempts.attempt import SliceTotals
from wattkeeper.sim.kernel.journal import Journal
from wattkeeper.sim.kernel.packed import write_f64_le, write_i32_le, write_i64_le
from wattkeeper.sim.kernel.rows import ABSENT, Rows
from wattkeeper.sim.kernel.spool import Spool

UNITS_PER_WATT: Final = 2**32
"""Power is counted in whole parts of a watt, so that sums of changes are exact up to 1 GW."""

MOST_UNITS: Final = 2**62

_EXACT: Final = 2.0**51

_ROUNDING: Final = 1.5 * 2.0**52
"""A double of this size has no fraction: adding it rounds to the nearest whole number, half to
even, as `round` does, below `_EXACT`."""

REACHED: Final = 1
EARLY: Final = 2
PROFILED: Final = 4
REPLAYED: Final = 8
"""Flags of an attempt; `REPLAYED`: from a profile."""


def whole_units(power_w: float) -> int:
    """Power in whole parts of a watt.

    Raises:
        InputError: If it is more than can be summed exactly.
    """
    units = power_w * UNITS_PER_WATT
    if -_EXACT < units < _EXACT:
        return int(units + _ROUNDING - _ROUNDING)
    if not units <= MOST_UNITS:  # it may be infinite
        raise power_too_large()
    return round(units)


def power_too_large() -> InputError:
    """The error for power that cannot be summed exactly."""
    most_gw = MOST_UNITS / UNITS_PER_WATT / 1e9
    return InputError(
        f"GPUs draw more than {most_gw:.2f} GW: check their power, the profiles and, with "
        "occupancy: recorded, the durations of jobs with a workload"
    )


_ENDED = {
    "number": "i8",
    "begun_s": "f8",
    "ended_s": "f8",
    "energy_j": "f8",
    "time_s": "f8",
    "cost": "f8",
    "power": "i8",
    "where": "i4",
}
"""Columns of all attempts."""

_TRAINED = {
    "row": "i8",
    "batch_size": "i8",
    "power_limit_w": "f8",
    "epochs": "i8",
    "attempt": "i4",
    "flags": "i1",
}
"""Columns of attempts with a workload."""

_LOCKED = {"row": "i8", "clock_mhz": "i4"}
"""Columns of attempts that ended with locked clocks."""

_DELAYED = {"row": "i8", "overhead_s": "f8", "preemptions": "i4"}
"""Columns of attempts that were preempted, or held their GPUs without training."""

_RETUNED = {"row": "i8", "retunes": "i4", "tune_paused_s": "f8"}
"""Columns of attempts that `Tune` is asked about after their start."""

_SIZED = {"row": "i8", "gpus": "i4"}
"""Columns of attempts that held another number of GPUs than their job asked for."""

_BROKEN_OFF = {"row": "i8", "lost_node": "i4", "lost_time_s": "f8", "lost_energy_j": "f8"}
"""Columns of attempts that ended with a lost node."""

_SLOWED = {"row": "i8", "slow_s": "f8"}
"""Columns of attempts that slow nodes slowed down."""

_SLICED = {
    "row": "i8",
    "slices": "i4",
    "slice_time_s": "f8",
    "slice_energy_j": "f8",
    "discarded_time_s": "f8",
    "discarded_energy_j": "f8",
}
"""Columns of attempts with slices."""

_DRAWN = {"row": "i8", "from_s": "f8", "to_s": "f8", "energy_j": "f8"}
"""Columns of the energy of these attempts over time."""

_PAUSED = {"number": "i8", "from_s": "f8", "to_s": "f8"}
"""Columns of preemptions: the job, when it lost its GPUs, and when it resumed."""

_CHANGED = {"time_s": "f8", "change": "i8"}
"""Columns of changes of power of jobs."""

_HELD = {"from_s": "f8", "to_s": "f8", "power": "i8"}
"""Columns of times for which attempts held GPUs without training, with the power of these."""

_SLEPT = {"from_s": "f8", "to_s": "f8", "awake": "i8", "asleep": "i8"}
"""Columns of sleep of nodes, with the power of their GPUs awake and asleep; from infinity on, they
sleep for ever."""


_DEFAULTS: dict[str, float] = {
    "attempt": 1,
    "batch_size": ABSENT,
    "power_limit_w": math.nan,
    "epochs": ABSENT,
    "flags": REACHED,
    "lost_node": ABSENT,
}


class NodeRow(NamedTuple):
    """What happened to a node.

    Attributes:
        time_s: When, s.
        node: Its number.
        event: `absent`, `down`, `up`, `notice` or `degraded`.
        cause: Why; empty if not known.
        deadline_s: With a notice: when it is expected to go down, s; else NaN.
        jobs: Jobs that ran on it and lost it; with `degraded`: whose pace that changed.
        lost_gpu_s: GPU time of training that they had not saved, s.
        lost_energy_j: Energy of that, J.
        factor: With `degraded`: time of an iteration over that at full pace; else NaN.
    """

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
    """What an elastic job did in one shape, an attempt.

    Attributes:
        number: `Job.number` of the job.
        attempt: Number of the attempt.
        time_s: Its begin, s.
        until_s: Its end, s.
        moment: Why its shape was chosen.
        nodes: Nodes that the job held.
        samples_per_s: Samples a second while it trained; 0: it had no shape yet.
        pause_s: Time in pauses, s.
        steps_s: Time in steps, s.
        write_s: Time in writes of checkpoints, s.
        lost_s: Of `steps_s`, what was lost, s.
        open_s: Of `steps_s`, what is neither committed nor lost at the end of the run, s.
        samples: Samples that were committed.
        lost_samples: Samples of finished steps that were lost.
        from_storage: Whether its state was read from storage.
        copied_bytes: What nodes sent each other for it, bytes; NaN: not known.
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


def waits_between_attempts(
    number: Ints, attempt: Ints, begun_s: Floats, ended_s: Floats
) -> tuple[Ints, Floats, Floats]:
    """The waits of jobs from the end of an attempt to the start of the next one.

    Args:
        number: `Job.number` of each attempt's job, shape (attempts,).
        attempt: Number of each attempt, likewise.
        begun_s: When each began, s, likewise.
        ended_s: When each ended, s, likewise.

    Returns:
        Job number, begin and end (s) of each wait, shapes (waits,).
    """
    order = np.lexsort((attempt, number))
    later = np.flatnonzero(number[order][1:] == number[order][:-1]) + 1
    return number[order][later], ended_s[order[later - 1]], begun_s[order[later]]


class Recorder:
    """Collects attempts, decisions and changes of power.

    Attributes:
        spool: Takes all rows of numbers.
        journal: Decisions.
        parents: Parents of attempts, by the attempt's row.
        node_changes: What happened to nodes: rows of `NODES`, in order.
        unable: Numbers of jobs that never ended, for want of nodes.
        follows_nodes: Whether nodes may be lost.
        shapes: What elastic jobs did in each shape: rows of `SHAPES`, in order.
        finished_elastic: Numbers of elastic jobs that trained all their samples.
        booting_losses: Losses of nodes that came back, on which no job could start yet.
    """

    def __init__(self) -> None:
        self.spool = Spool()
        self.journal = Journal(self.spool)
        self.node_changes: list[NodeRow] = []
        self.unable: list[int] = []
        self.follows_nodes = False
        self.shapes: list[ShapeRow] = []
        self.finished_elastic: set[int] = set()
        self.booting_losses = 0
        self.clear()

    def clear(self) -> None:
        """Forget all but the journal."""
        self.parents: dict[int, str] = {}
        self._ended = Rows(_ENDED, self.spool)
        self._trained = Rows(_TRAINED, self.spool)
        self._locked = Rows(_LOCKED, self.spool)
        self._delayed = Rows(_DELAYED, self.spool)
        self._retuned = Rows(_RETUNED, self.spool)
        self._sliced = Rows(_SLICED, self.spool)
        self._broken_off = Rows(_BROKEN_OFF, self.spool)
        self._slowed = Rows(_SLOWED, self.spool)
        self._sized = Rows(_SIZED, self.spool)
        self._drawn = Rows(_DRAWN, self.spool)
        self._paused = Rows(_PAUSED, self.spool)
        self._changed = Rows(_CHANGED, self.spool)
        self._held = Rows(_HELD, self.spool)
        self._slept = Rows(_SLEPT, self.spool)

    def add_attempt(
        self,
        number: int,
        begun_s: float,
        ended_s: float,
        energy_j: float,
        time_s: float,
        cost: float,
        where: int,
        power: int,
    ) -> None:
        """Add an attempt that ended.

        Args:
            number: `Job.number` of its job.
            begun_s: When it first held its GPUs.
            ended_s: When it released them.
            energy_j: Energy of training, with overheads.
            time_s: Time of training.
            cost: Its cost, J.
            where: Index of its last placement in the journal.
            power: Power above that of idle GPUs, in `UNITS_PER_WATT`; changes of it are added by
                `add_power_change`.
        """
        row = self._ended.writer
        write_i64_le(row, number)
        write_f64_le(row, begun_s)
        write_f64_le(row, ended_s)
        write_f64_le(row, energy_j)
        write_f64_le(row, time_s)
        write_f64_le(row, cost)
        write_i64_le(row, power)
        write_i32_le(row, where)
        self._ended.end_row()

    def add_training(
        self, attempt: int, batch_size: int, power_limit_w: float, epochs: int, flags: int
    ) -> None:
        """Add the training of the last added attempt, whose job has a workload.

        Args:
            attempt: Number of the attempt of its job, from 1.
            batch_size: Its batch size.
            power_limit_w: Its last power limit, W.
            epochs: Completed epochs.
            flags: `REACHED`, `EARLY`, `PROFILED`, `REPLAYED`.
        """
        row = self._trained.writer
        write_i64_le(row, self.attempts - 1)
        write_i64_le(row, batch_size)
        write_f64_le(row, power_limit_w)
        write_i64_le(row, epochs)
        write_i32_le(row, attempt)
        row.append(flags)
        self._trained.end_row()

    def add_clock(self, clock_mhz: int) -> None:
        """Add the last locked clock of the last added attempt, MHz."""
        row = self._locked.writer
        write_i64_le(row, self.attempts - 1)
        write_i32_le(row, clock_mhz)
        self._locked.end_row()

    @property
    def has_clocks(self) -> bool:
        """Whether an attempt ended with locked clocks."""
        return bool(len(self._locked))

    def add_slices(self, totals: SliceTotals, scale: float) -> None:
        """Add the slices of the last added attempt; their times and energies are scaled."""
        slices, time_s, energy_j, discarded_s, discarded_j = totals
        row = self._sliced.writer
        write_i64_le(row, self.attempts - 1)
        write_i32_le(row, slices)
        write_f64_le(row, time_s * scale)
        write_f64_le(row, energy_j * scale)
        write_f64_le(row, discarded_s * scale)
        write_f64_le(row, discarded_j * scale)
        self._sliced.end_row()

    @property
    def has_slices(self) -> bool:
        """Whether an attempt had slices."""
        return bool(len(self._sliced))

    def add_loss(
        self, node: int, lost_time_s: float, lost_energy_j: float, attempt: int | None = None
    ) -> None:
        """Add that an attempt ended with a lost node, and what it had not saved.

        Time is that of training (s), energy that of all its GPUs (J). `attempt`: its row, that of
        the last added one if None; what was added to it before is replaced.
        """
        row = self._broken_off.writer
        write_i64_le(row, self.attempts - 1 if attempt is None else attempt)
        write_i32_le(row, node)
        write_f64_le(row, lost_time_s)
        write_f64_le(row, lost_energy_j)
        self._broken_off.end_row()

    def add_shape(self, row: ShapeRow, gpus: int) -> None:
        """Add the shape of the last added attempt, on so many GPUs."""
        self.shapes.append(row)
        sized = self._sized.writer
        write_i64_le(sized, self.attempts - 1)
        write_i32_le(sized, gpus)
        self._sized.end_row()

    def held_gpus(self, asked: Ints, begin: int = 0) -> Ints:
        """GPUs that each attempt held, given those that its job asked for, shape (attempts,).

        Of the attempts from `begin` on.
        """
        if not len(self._sized):
            return asked
        held = asked.copy()
        self._sized.spread("gpus", held, begin)
        return held

    @property
    def has_losses(self) -> bool:
        """Whether an attempt ended with a lost node."""
        return bool(len(self._broken_off))

    def add_slow(self, slow_s: float) -> None:
        """Add the time that slow nodes added to the training of the last added attempt, s."""
        row = self._slowed.writer
        write_i64_le(row, self.attempts - 1)
        write_f64_le(row, slow_s)
        self._slowed.end_row()

    @property
    def has_slow(self) -> bool:
        """Whether slow nodes slowed an attempt down."""
        return bool(len(self._slowed))

    def requeues(self) -> tuple[Ints, Floats, Floats]:
        """See `waits_between_attempts`; none where no attempt ended but with its job or at once."""
        if not (self.has_losses or self.shapes):
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        columns = (self.column(name) for name in ("number", "attempt", "begun_s", "ended_s"))
        return waits_between_attempts(*columns)

    def add_delay(self, overhead_s: float, preemptions: int) -> None:
        """Add seconds without training, and preemptions, of the last added attempt."""
        row = self._delayed.writer
        write_i64_le(row, self.attempts - 1)
        write_f64_le(row, overhead_s)
        write_i32_le(row, preemptions)
        self._delayed.end_row()

    def add_retunes(
        self, retunes: int, paused_s: float, draws: list[tuple[float, float]], until_s: float
    ) -> None:
        """Add what `Tune` changed in the last added attempt.

        Args:
            retunes: How often its knobs changed after its start.
            paused_s: Time for which `Tune` paused it, s.
            draws: Time (s) and power (W) from then on, of each change of its power.
            until_s: Its end, s.
        """
        attempt = self.attempts - 1
        row = self._retuned.writer
        write_i64_le(row, attempt)
        write_i32_le(row, retunes)
        write_f64_le(row, paused_s)
        self._retuned.end_row()
        for index, (from_s, power_w) in enumerate(draws):
            to_s = draws[index + 1][0] if index + 1 < len(draws) else until_s
            if to_s > from_s and power_w > 0:
                row = self._drawn.writer
                write_i64_le(row, attempt)
                write_f64_le(row, from_s)
                write_f64_le(row, to_s)
                write_f64_le(row, power_w * (to_s - from_s))
                self._drawn.end_row()

    @property
    def has_retunes(self) -> bool:
        """Whether `Tune` was asked about attempts after their start."""
        return bool(len(self._retuned))

    def draws(self, begin: int, end: int) -> tuple[Ints, Floats, Floats, Floats]:
        """Spans of even power of some attempts.

        Returns:
            Index of the attempt, from 0 at `begin`; start, end (s) and energy (J).
        """
        columns = self._drawn.among(begin, end)
        return (columns["row"] - begin, columns["from_s"], columns["to_s"], columns["energy_j"])

    def add_parent(self, parent: str) -> None:
        """Add the id of the model whose weights the last added attempt started from."""
        self.parents[self.attempts - 1] = parent

    @property
    def attempts(self) -> int:
        """Number of added attempts."""
        return len(self._ended)

    def add_power_change(self, now_s: float, change: int) -> None:
        """Add a change of power during an attempt."""
        row = self._changed.writer
        write_f64_le(row, now_s)
        write_i64_le(row, change)
        self._changed.end_row()

    def column(self, name: str, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """A column of some attempts, by default of all; defaults where nothing was added."""
        if name in self._ended:
            return self._ended.column(name, begin, end)
        groups = (
            self._trained,
            self._locked,
            self._delayed,
            self._retuned,
            self._sliced,
            self._broken_off,
            self._slowed,
        )
        rows = next(rows for rows in groups if name in rows)
        number = (self.attempts if end is None else end) - begin
        values = np.full(number, _DEFAULTS.get(name, 0), rows.column(name, 0, 0).dtype)
        rows.spread(name, values, begin)
        return values

    def add_pause(self, number: int, from_s: float, to_s: float) -> None:
        """Add a pause: a job, by `Job.number`, was preempted at `from_s` and resumed at `to_s`."""
        row = self._paused.writer
        write_i64_le(row, number)
        write_f64_le(row, from_s)
        write_f64_le(row, to_s)
        self._paused.end_row()

    def pauses(self) -> tuple[Ints, Floats, Floats]:
        """Job number, start and end (s) of each pause, shapes (pauses,)."""
        rows = self._paused
        return rows.column("number"), rows.column("from_s"), rows.column("to_s")

    def add_hold(self, from_s: float, to_s: float, power: int) -> None:
        """Add a time for which an attempt held GPUs without training.

        `power` is what these GPUs drew idle, in `UNITS_PER_WATT`.
        """
        row = self._held.writer
        write_f64_le(row, from_s)
        write_f64_le(row, to_s)
        write_i64_le(row, power)
        self._held.end_row()

    def holds(self) -> tuple[Floats, Floats, Ints]:
        """Start, end (s) and idle power (`UNITS_PER_WATT`) of each hold, shapes (holds,)."""
        rows = self._held
        return rows.column("from_s"), rows.column("to_s"), rows.column("power")

    def add_sleep(self, from_s: float, to_s: float, awake: int, asleep: int) -> None:
        """Add the sleep of a node; `to_s` is infinite if it does not wake any more.

        `awake` and `asleep` are the power of its GPUs without a job, in `UNITS_PER_WATT`.
        """
        row = self._slept.writer
        write_f64_le(row, from_s)
        write_f64_le(row, to_s)
        write_i64_le(row, awake)
        write_i64_le(row, asleep)
        self._slept.end_row()

    def sleeps(self) -> tuple[Floats, Floats, Ints, Ints]:
        """Start, end (s), and power awake and asleep of each sleep, shapes (sleeps,)."""
        rows = self._slept
        return (
            rows.column("from_s"),
            rows.column("to_s"),
            rows.column("awake"),
            rows.column("asleep"),
        )

    def changes(self) -> tuple[Floats, Ints]:
        """Times (s) and amounts (`UNITS_PER_WATT`) of changes of power, shapes (changes,)."""
        return self._changed.column("time_s"), self._changed.column("change")
