"""Interface of import formats: from batches of text to columns of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    import pyarrow as pa

    from wattkeeper.policies.arrays import Floats, Ints
    from wattkeeper.traces.trace import Trace


class Quality(TypedDict):
    """Counts of an import, as in `Trace.quality`.

    ``rows`` read = ``kept`` + ``wrong`` (malformed, skipped) + ``dropped`` (by reason).
    ``wrong_examples`` has the first 20 texts with their first places, as ``FILE, line N: text``;
    it stands for ``wrong_shown`` rows. ``doubts`` counts suspicious rows by reason;
    ``doubt_examples`` has the first place of each.
    """

    rows: int
    kept: int
    wrong: int
    wrong_examples: list[str]
    wrong_shown: int
    dropped: dict[str, int]
    doubts: dict[str, int]
    doubt_examples: dict[str, str]
    time_origin: str
    time_unit: str
    cannot_tell: list[str]


TimeKind = Literal["numbers", "local", "offset"]
"""How a time is written: as a number of seconds, or as a date without or with its offset from
UTC."""
TimeMeaning = Literal["relative", "since-1970", "local", "offset"]
"""What times of a log are: seconds from an origin of its own or since 1970 (UTC); dates on clocks
whose zone is not recorded; dates with their offset from UTC."""


class Kinds(NamedTuple):
    """How many times are written in which way, as `TimeKind`."""

    numbers: int = 0
    local: int = 0
    offset: int = 0

    def __or__(self, other: Kinds) -> Kinds:
        """The sum of two counts."""
        return Kinds(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def found(self) -> tuple[TimeKind, ...]:
        """Those that there are, the most frequent first."""
        kinds: tuple[TimeKind, ...] = ("numbers", "local", "offset")
        counts = {kind: count for kind, count in zip(kinds, self, strict=True) if count}
        return tuple(sorted(counts, key=lambda kind: -counts[kind]))


class ImportOptions(NamedTuple):
    """What the caller of an import says beyond the files.

    Attributes:
        mapping: For format ``csv``: canonical column to column of the file.
        columns: Names of the columns of files that have no header line; empty: they have one.
        default_estimate_s: Estimate of jobs without one.
        partitions: File with limit and GPU type of each partition; see
            `wattkeeper.traces.library.partitions`.
        since: First submission that is kept, as a date or a number as in the log.
        until: First submission that is not kept any more.
        zone: Time zone of the log's dates, where they have no offset from UTC.
        power: Power log whose samples say what jobs drew: its name in the library, or its folder.
    """

    mapping: Mapping[str, str] = {}
    columns: tuple[str, ...] = ()
    default_estimate_s: float | None = None
    partitions: Path | None = None
    since: str | None = None
    until: str | None = None
    zone: str | None = None
    power: str | None = None


class Batch(NamedTuple):
    """A part of a file that fits into memory.

    Attributes:
        path: The file.
        lines: Physical line number (1-based) of each row; record number where there are no lines.
        rows: Input of `JobsFormat.convert`: a table of texts, or a list of records.
        wrong: Lines that could not be split into rows: fault by line number.
        context: Further input of `convert`.
        kind: How times must be written, where a format accepts several kinds; None until that is
            decided.
    """

    path: Path
    lines: Ints
    rows: Any
    wrong: Mapping[int, str] = {}
    context: Any = None
    kind: TimeKind | None = None


class WithoutGpus(NamedTuple):
    """Jobs that started and ask for no GPU.

    Attributes:
        rows: Their 0-based numbers in the batch.
        cluster: The cluster of each.
        queue: The partition of each.
        submit_time_s: Their submissions.
    """

    rows: Ints
    cluster: pa.Array
    queue: pa.Array
    submit_time_s: Floats


class ConvertedRows(NamedTuple):
    """The result of a batch. Each of its rows is either kept, wrong, or dropped.

    Attributes:
        jobs: Columns of `wattkeeper.traces.schema.JOBS`, one value per kept row; missing columns
            get the defaults of `jobs_table`. ``submit_time_s`` may count from any origin.
        kept: 0-based number in the batch of each kept row, ascending.
        wrong: Malformed rows: fault by 0-based number in the batch.
        dropped: Number of well-formed rows that are not GPU jobs, by reason.
        doubts: Suspicious kept rows by reason: their 0-based numbers in the batch.
        kinds: Of the times in all rows; those of dates count from 1970-01-01 00:00:00, of UTC where
            they have their offset, else of the log's clocks. If files mix kinds, they are converted
            again with `Batch.kind` set to the most frequent one.
        names: The file's name of a canonical column, where it differs.
        identity: What else a log says of each kept row. Of a format with requeues, what tells jobs
            and tries of one id apart: ``cluster``, ``ended_s``, and ``eligible_s``, before which it
            could not start. Where it ran: ``nodes`` and ``gpu_ids``, as in
            `wattkeeper.traces.power.hosts`.
        without_gpus: Dropped jobs, where a log may be older than its counts of GPUs.
    """

    jobs: Mapping[str, pa.Array]
    kept: Ints
    wrong: Mapping[int, str]
    dropped: Mapping[str, int]
    doubts: Mapping[str, Ints] = {}
    kinds: Kinds = Kinds()
    names: Mapping[str, str] = {}
    identity: Mapping[str, pa.Array] = {}
    without_gpus: WithoutGpus | None = None


class JobsFormat(NamedTuple):
    """An import format of job logs, read in batches.

    Attributes:
        name: As written on the command line.
        summary: One line.
        takes: Description of the paths that it needs.
        source: Citation.
        licence: SPDX name or what is known.
        time_unit: How times are written.
        cannot_tell: Information that the log lacks, one sentence each.
        sniff: Whether a path looks like this format; reads only its beginning, never raises.
        batches: From paths and options to batches in file order; raises `TraceError`.
        convert: From a batch to canonical columns.
        nodes: From paths to a table `NODES`, or to None if they do not describe nodes.
        origin: Origin of the resulting trace.
        times: What its times may be.
        headers: Whether files have a header line, which `ImportOptions.columns` can stand for.
        requeues: Whether rows of one id may be tries of one job; otherwise ids are unique.
    """

    name: str
    summary: str
    takes: str
    source: str
    licence: str
    time_unit: str
    cannot_tell: tuple[str, ...]
    sniff: Callable[[Path], bool]
    batches: Callable[[Sequence[Path], ImportOptions], Iterator[Batch]]
    convert: Callable[[Batch], ConvertedRows]
    nodes: Callable[[Sequence[Path]], pa.Table | None] | None = None
    origin: Literal["recorded", "modelled", "synthetic"] = "recorded"
    times: tuple[TimeMeaning, ...] = ("relative",)
    headers: bool = False
    requeues: bool = False


class Format(NamedTuple):
    """An import format of small inputs, read at once.

    Attributes:
        name: As written on the command line.
        summary: One line.
        takes: Description of the paths that it needs.
        read: From these paths to a trace with a default name; raises `TraceError`.
        sniff: Whether a path looks like this format; reads only its beginning, never raises.
        read_good: As `read`, but skips and counts malformed rows; None if it cannot.
    """

    name: str
    summary: str
    takes: str
    read: Callable[[Sequence[Path]], Trace]
    sniff: Callable[[Path], bool] = lambda path: False
    read_good: Callable[[Sequence[Path]], Trace] | None = None
