"""What a reader of a format takes and gives: batches of text in, columns of jobs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    import pyarrow as pa

    from wattkeeper.policies.arrays import Ints
    from wattkeeper.traces.trace import Trace


class Quality(TypedDict):
    """What an import found, as `Trace.quality` keeps it.

    ``rows`` read = ``kept`` + ``wrong`` (malformed, skipped) + ``dropped`` (by reason).
    ``wrong_examples`` has the first 20 as ``FILE, line N: text``. ``doubts`` counts kept rows that
    are odd, by what is odd.
    """

    rows: int
    kept: int
    wrong: int
    wrong_examples: list[str]
    dropped: dict[str, int]
    doubts: dict[str, int]
    time_origin: str
    time_unit: str
    cannot_tell: list[str]


class Batch(NamedTuple):
    """A part of a file that fits into memory.

    Attributes:
        path: The file.
        lines: Physical line number (1-based) of each row; record number where there are no lines.
        rows: What `JobsFormat.convert` takes: a table of texts, or a list of records.
        wrong: Lines that could not be split into rows: by line number, what is wrong.
        context: Whatever else `convert` needs.
        dates: Whether times must be dates (True) or numbers (False), where a format takes either;
            None while nobody knows.
    """

    path: Path
    lines: Ints
    rows: Any
    wrong: Mapping[int, str] = {}
    context: Any = None
    dates: bool | None = None


class Rows(NamedTuple):
    """What a batch became. Every row of it is kept, wrong, or dropped.

    Attributes:
        jobs: Columns of `wattkeeper.traces.schema.JOBS`, one value a kept row; those left out
            are absent, as `jobs_table` says. ``submit_time_s`` may count from any origin.
        kept: Of each kept row, its 0-based number in the batch, ascending.
        wrong: Malformed rows, by 0-based number in the batch: what is wrong.
        dropped: Well-formed rows that are no GPU job: how many, by reason.
        absolute: Whether ``submit_time_s`` counts from 1970-01-01 00:00:00.
        doubts: Kept rows that are odd: how many, by what is odd.
        kinds: How many times, of all rows, were written as numbers and how many as dates, where a
            format takes either. If its files mix them, they are converted again with
            `Batch.dates` set to the kind of most.
        names: What the file calls a canonical column, where it has another name for it.
    """

    jobs: Mapping[str, pa.Array]
    kept: Ints
    wrong: Mapping[int, str]
    dropped: Mapping[str, int]
    absolute: bool = False
    doubts: Mapping[str, int] = {}
    kinds: tuple[int, int] = (0, 0)
    names: Mapping[str, str] = {}


class JobsFormat(NamedTuple):
    """How to read one kind of job log, batch by batch.

    Attributes:
        name: As written on the command line.
        summary: One line.
        takes: The paths that it needs, in words.
        source: Citation.
        licence: SPDX name or what is known.
        time_unit: How times are written.
        cannot_tell: What the log cannot tell, one sentence each.
        sniff: Whether a path looks like this format; reads its beginning, never raises.
        batches: From paths, and for format ``csv`` the mapping CANONICAL to COLUMN, to batches in
            file order; raises `TraceError`.
        convert: From a batch to canonical columns.
        nodes: From paths to a table `NODES`, or to None where they tell nothing of nodes.
        origin: Of the trace that it makes.
        clock: Whose clock shows absolute times.
    """

    name: str
    summary: str
    takes: str
    source: str
    licence: str
    time_unit: str
    cannot_tell: tuple[str, ...]
    sniff: Callable[[Path], bool]
    batches: Callable[[Sequence[Path], Mapping[str, str]], Iterator[Batch]]
    convert: Callable[[Batch], Rows]
    nodes: Callable[[Sequence[Path]], pa.Table | None] | None = None
    origin: Literal["recorded", "modelled", "synthetic"] = "recorded"
    clock: str = "UTC"


class Format(NamedTuple):
    """How to read one kind of input at once.

    Attributes:
        name: As written on the command line.
        summary: One line.
        takes: The paths that it needs, in words.
        read: From these paths to a trace with a default name; raises `TraceError`.
        sniff: Whether a path looks like this format; reads its beginning, never raises.
        read_good: As `read`, but leaves bad rows out and counts them; None if it cannot.
    """

    name: str
    summary: str
    takes: str
    read: Callable[[Sequence[Path]], Trace]
    sniff: Callable[[Path], bool] = lambda path: False
    read_good: Callable[[Sequence[Path]], Trace] | None = None
