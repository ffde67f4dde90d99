"""Files of sacct: values separated by ``|`` or commas, with a header or without, or JSON."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.slurm.json_log import is_json, json_batches, looks_right
from wattkeeper.traces.formats.slurm.records import keep_together
from wattkeeper.traces.formats.slurm.resources import GPU_COLUMNS
from wattkeeper.traces.readers.base import Batch, ImportOptions
from wattkeeper.traces.readers.csvfile import quote
from wattkeeper.traces.readers.textfile import Layout, first_line, name_columns, text_batches

LAYOUT: Final = Layout(delimiter="|", quotes=False, trailing=True)
COMMAS: Final = Layout(delimiter=",", trailing=True)
MARKS: Final = "|,;\t^"
PADDED: Final = re.compile(r" \d{4}-\d\d-\d\dT[\d:]{8}( |$)")
"""A date in a table of columns."""
NEEDED: Final = ("JobID", "Submit", "Start")
TOO_MANY_LISTS: Final = (
    "; it cannot be told where each of several lists of resources ends: keep one of them, or let "
    "sacct separate values by |"
)


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read any number of logs; no job is divided between two batches.

    Raises:
        TraceError: If a file is wrong, or has no column that tells of GPUs; at once if it was not
            written as it must be.
    """
    for path in paths:
        if not is_json(path):
            _refuse_table(path)
        elif options.columns:
            raise TraceError("is JSON, which names its values: leave --columns out", path)
    return _read(paths, options)


def _read(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    for path in paths:
        if is_json(path):
            yield from keep_together(json_batches(path))
            continue
        layout = _layout_of(path)
        header = set(options.columns or _split_header(path))
        if header.issuperset(NEEDED) and header.isdisjoint(GPU_COLUMNS):
            text = f"no column tells of GPUs; one of {', '.join(GPU_COLUMNS)} is needed"
            raise TraceError(text, f"{path}, header")
        lists = [name for name in header if "TRES" in name or "GRES" in name]
        if layout.delimiter == "," and len(lists) == 1:
            layout = layout._replace(listing=lists[0])
        read = text_batches(path, name_columns(layout, options), NEEDED)
        if layout.delimiter == "," and len(lists) > 1:
            read = _explain_lists(read)
        yield from keep_together(read)


def sniff(path: Path) -> bool:
    """Whether its first line is a header of sacct, or it is JSON of sacct."""
    named = "JobID" in first_line(path).split()  # of a table for the screen
    return named or looks_right(path) or set(NEEDED) <= set(_split_header(path))


def _refuse_table(path: Path) -> None:
    """Refuse what sacct writes without options: a table whose values are cut."""
    line = first_line(path)
    plain = not any(mark in line for mark in MARKS)
    if line.strip() and (plain or ("|" not in line and PADDED.search(line))):
        text = (
            f"its values are not separated by '|', as in {quote(line.strip())}: a table of sacct "
            "cuts values; write the log with sacct --parsable2"
        )
        raise TraceError(text, f"{path}, line 1")


def _explain_lists(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Add to faults of the number of values that several lists of resources may hold commas."""
    for batch in batches:
        wrong = {
            line: text + TOO_MANY_LISTS if " values, must have " in text else text
            for line, text in batch.wrong.items()
        }
        yield batch._replace(wrong=wrong)


def _layout_of(path: Path) -> Layout:
    """Values are separated by commas where the first line has no other mark."""
    line = first_line(path)
    return COMMAS if "|" not in line and "," in line else LAYOUT


def _split_header(path: Path) -> list[str]:
    line = first_line(path)
    if _layout_of(path) is LAYOUT:
        return line.split("|")
    return [name.strip().strip('"') for name in line.split(",")]
