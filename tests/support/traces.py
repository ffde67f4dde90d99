"""Traces in memory, read from files of any format."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wattkeeper.traces.formats import find_format
from wattkeeper.traces.library import folder as folders
from wattkeeper.traces.library.importer import write_jobs
from wattkeeper.traces.models.network_table import NetworkTable
from wattkeeper.traces.readers.base import JobsFormat
from wattkeeper.traces.trace import Trace


def import_trace(form: str, paths: Sequence[Path], name: str | None = None) -> Trace:
    """Read files into a trace in memory, as `wattkeeper.traces.library.store.add` does to disk."""
    known = find_format(form, paths)
    if isinstance(known, JobsFormat):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "trace"
            write_jobs(known, paths, name, folder)
            return folders.read(folder)
    trace = known.read(paths)
    return trace if name is None else replace(trace, name=name)


def read_table(trace: Trace) -> NetworkTable:
    """The networks of a trace of one task."""
    return NetworkTable(trace.name, trace.tables, trace.parameters)
