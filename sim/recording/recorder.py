"""Records of a run: growing columns of plain numbers."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from mypy_extensions import i64

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import NEW, Job, Placement
from wattkeeper.sim.attempts.attempt import SliceTotals
from wattkeeper.sim.attempts.decisions import DecisionJournal
from wattkeeper.sim.native import BytesWriter, append, vec, write_f64_le, write_i32_le, write_i64_le
from wattkeeper.sim.recording.spool import Spool, SpooledBlock

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

ABSENT: Final = -1


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

_DECIDED = {
    "time_s": "f8",
    "number": "i8",
    "seen": "i8",
    "also_seen": "i8",
    "attempt": "i4",
    "chose": "i4",
    "maker": "i1",
}
"""Columns of decisions."""

MOST_CHARACTERS: Final = 2000
"""Of a text whose digest is remembered; views of large clusters print longer ones."""

FEW_GPUS: Final = 16
"""Placements of fewer GPUs on one node are found by their numbers."""

BUFFER_BYTES = 1 << 18
"""Size from which written rows are put aside."""

MOST_ROWS: Final = 2**62

_DEFAULTS: dict[str, float] = {
    "attempt": 1,
    "batch_size": ABSENT,
    "power_limit_w": math.nan,
    "epochs": ABSENT,
    "flags": REACHED,
    "lost_node": ABSENT,
}


class _Rows:
    """Rows of numbers, appended one by one, read as columns.

    Args:
        codes: Name and type of each column, in the order in which `writer` is given them; as NumPy
            codes them, little-endian. `row`: the number of the attempt that a row is about.
        spool: Takes complete rows.

    Attributes:
        writer: Takes the numbers of a row, then `end_row` is called; compiled code writes numbers
            without making objects of them.
    """

    def __init__(self, codes: Mapping[str, str], spool: Spool) -> None:
        self.writer = BytesWriter()
        self._spool = spool
        self._blocks: list[SpooledBlock] = []
        self._begins: list[int] = [0]
        self._about: list[tuple[int, int]] = []
        self._type = np.dtype([(name, f"<{code}") for name, code in codes.items()])
        self._row_bytes: int = self._type.itemsize

    def __len__(self) -> int:
        return self._begins[-1] + len(self.writer) // self._row_bytes

    def end_row(self) -> None:
        """Complete a row."""
        if len(self.writer) >= BUFFER_BYTES:
            self._move()

    def _move(self) -> None:
        rows = np.frombuffer(self.writer.getvalue(), self._type)
        self.writer = BytesWriter()
        self._blocks.append(self._spool.keep(rows))
        self._begins.append(self._begins[-1] + len(rows))
        if "row" in self:
            about = rows["row"]
            self._about.append((int(about.min(initial=MOST_ROWS)), int(about.max(initial=ABSENT))))

    def __contains__(self, name: str) -> bool:
        return name in (self._type.names or ())

    def blocks(self) -> list[SpooledBlock]:
        """All rows, in blocks that a processor's cache holds; at least one."""
        if len(self.writer) or not self._blocks:
            self._move()
        return self._blocks

    def column(self, name: str, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
        """A column of some rows, by default of all, shape (rows,)."""
        blocks, begins = self.blocks(), self._begins
        end = len(self) if end is None else end
        values = np.empty(end - begin, self._type[name])
        index = bisect_right(begins, begin) - 1
        while index < len(blocks) and begins[index] < end:
            first = begins[index]
            part = blocks[index][name][max(begin - first, 0) : end - first]
            at = max(first - begin, 0)
            values[at : at + len(part)] = part
            index += 1
        return values

    def among(self, begin: int, end: int) -> dict[str, npt.NDArray[Any]]:
        """The rows about some attempts, as columns."""
        names = self._type.names or ()
        parts = {name: [np.empty(0, self._type[name])] for name in names}
        for block, (first, last) in zip(self.blocks(), self._about, strict=True):
            if last >= begin and first < end:
                row = block["row"]
                inside = (row >= begin) & (row < end)
                for name in names:
                    parts[name].append(block[name][inside])
        return {name: np.concatenate(part) for name, part in parts.items()}

    def spread(self, name: str, values: npt.NDArray[Any], begin: int) -> None:
        """Put a column where its rows belong in `values`: of the attempts from `begin` on."""
        columns = self.among(begin, begin + len(values))
        values[columns["row"] - begin] = columns[name]


class Journal(DecisionJournal):
    """Decisions in order, as columns.

    The start of a job is decided by `Select` and `Place` together and stored as one row: a choice
    of `Select` that is a placement.

    Attributes:
        makers: Decision point and policy, one entry per decision point.
        choices: Index of each choice, a placement or a text.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.makers: list[tuple[str, str]] = []
        self._points: list[str] = []
        self.choices: dict[Placement | str, int] = {}
        self._on_one_node = vec[i64]()
        self.clear()

    def clear(self) -> None:
        """Forget the decisions."""
        self._rows = _Rows(_DECIDED, self._spool)

    def add_maker(self, point: str, policy: str) -> None:
        """Add the policy of a decision point."""
        self.makers.append((point, policy))
        self._points.append(point)

    def maker_of(self, point: str) -> int:
        """The index of a decision point's policy."""
        return self._points.index(point)

    def index_choice(self, chose: Placement | str) -> int:
        """The index of a choice; a new choice gets the next one."""
        return self.choices.setdefault(chose, len(self.choices))

    def index_placement(self, placement: Placement) -> int:
        """The index of a placement; one of a few whole GPUs of one node is found by its numbers."""
        node, gpus, gpu = placement[0]
        if gpu != NEW or len(placement) > 1 or gpus >= FEW_GPUS:
            return self.index_choice(placement)
        row: i64 = node * FEW_GPUS + gpus
        while row >= len(self._on_one_node):
            self._on_one_node = append(self._on_one_node, ABSENT)
        known = self._on_one_node[row]
        if known == ABSENT:
            known = self._on_one_node[row] = self.index_choice(placement)
        return known

    def add(
        self,
        now_s: float,
        maker: int,
        number: int,
        attempt: int,
        chose: int,
        seen: int,
        also_seen: int = 0,
    ) -> None:
        """Add a decision about a job; what the policy saw is two numbers, or a digest.

        For a start, `Select` saw the number of waiting jobs and of free GPUs.
        """
        row = self._rows.writer
        write_f64_le(row, now_s)
        write_i64_le(row, number)
        write_i64_le(row, seen)
        write_i64_le(row, also_seen)
        write_i32_le(row, attempt)
        write_i32_le(row, chose)
        row.append(maker)
        self._rows.end_row()

    def note(
        self, now_s: float, point: str, job: Job, attempt: int, saw: tuple[object, ...], chose: str
    ) -> None:
        """See `wattkeeper.sim.attempts.decisions.DecisionJournal`."""
        maker, choice = self.maker_of(point), self.index_choice(chose)
        self.add(now_s, maker, job.number, attempt, choice, digest_of(saw))

    def decisions(self, gpus_of: Callable[[Ints], Ints]) -> Iterator[dict[str, npt.NDArray[Any]]]:
        """The decisions as columns, in parts; those of a start in two rows: `Select`, then `Place`.

        Args:
            gpus_of: Returns the GPUs of jobs by their number.

        Returns:
            `time_s`, `maker` (index into `makers`), `number`, `attempt`, `chose` (index into
            `choices`) and `saw`: a digest of 64 bits of time, job, attempt, and the policy's view:
            for `Place` the GPUs of the job, and the number of free ones.
        """
        self.index_choice("start")
        places = np.array([not isinstance(choice, str) for choice in self.choices], dtype=bool)
        for block in self._rows.blocks():
            yield self._expand(block, places, gpus_of)

    def _expand(
        self, block: SpooledBlock, places: npt.NDArray[np.bool_], gpus_of: Callable[[Ints], Ints]
    ) -> dict[str, npt.NDArray[Any]]:
        """The decisions of some rows, each start in two rows."""
        raw = {name: block[name] for name in _DECIDED}
        digest = np.zeros(block.rows, dtype=np.uint64)
        for name in ("time_s", "number", "attempt"):
            digest = _add_to_digest(digest, raw[name])
        starts = places[raw["chose"]]
        raw["saw"] = digest
        columns = {name: np.repeat(values, 1 + starts) for name, values in raw.items()}
        placed = np.flatnonzero(starts) + np.arange(1, 1 + int(starts.sum()))
        columns["chose"][placed - 1] = self.index_choice("start")
        columns["maker"][placed] = self.maker_of("place")
        columns["seen"][placed] = gpus_of(columns["number"][placed])
        for name in ("seen", "also_seen"):
            columns["saw"] = _add_to_digest(columns["saw"], columns.pop(name))
        return columns


def _add_to_digest(
    digest: npt.NDArray[np.uint64], values: npt.NDArray[Any]
) -> npt.NDArray[np.uint64]:
    """Digests of 64 bits with one more column."""
    wide = values.astype(np.int64) if values.dtype.kind == "i" else values.copy()
    mixed = _mix(wide.view(np.uint64))
    mixed ^= digest
    return _mix(mixed)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection of 64 bits that spreads every bit (SplitMix64; Steele et al., OOPSLA '14).

    The values are replaced.
    """
    values += np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def digest_of(seen: object) -> int:
    """A digest of values that are not numbers, as a signed integer of 64 bits."""
    text = repr(seen)
    return _remembered_digest(text) if len(text) <= MOST_CHARACTERS else _digest_of_text(text)


@lru_cache(maxsize=1 << 12)
def _remembered_digest(text: str) -> int:
    """Many decisions, such as those of the first job of a group, see the same short text."""
    return _digest_of_text(text)


def _digest_of_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


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
        self._ended = _Rows(_ENDED, self.spool)
        self._trained = _Rows(_TRAINED, self.spool)
        self._locked = _Rows(_LOCKED, self.spool)
        self._delayed = _Rows(_DELAYED, self.spool)
        self._retuned = _Rows(_RETUNED, self.spool)
        self._sliced = _Rows(_SLICED, self.spool)
        self._broken_off = _Rows(_BROKEN_OFF, self.spool)
        self._slowed = _Rows(_SLOWED, self.spool)
        self._sized = _Rows(_SIZED, self.spool)
        self._drawn = _Rows(_DRAWN, self.spool)
        self._paused = _Rows(_PAUSED, self.spool)
        self._changed = _Rows(_CHANGED, self.spool)
        self._held = _Rows(_HELD, self.spool)
        self._slept = _Rows(_SLEPT, self.spool)

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
