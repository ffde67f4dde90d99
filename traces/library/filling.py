"""Estimates and GPU types that a log lacks, from what the caller of an import says."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import InputError, TraceError
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.estimates import OutlivedEstimates, count_outlived
from wattkeeper.traces.library.partitions import read_partitions
from wattkeeper.traces.readers.base import ImportOptions
from wattkeeper.traces.schema import LARGEST


class Filling:
    """Fills columns of jobs where they are absent, and counts what it filled.

    Attributes:
        outlived: How many jobs ran longer than estimated, filled estimates included.

    Raises:
        InputError: If the default estimate is no number of seconds > 0.
        TraceError: If the file of partitions is wrong.
    """

    def __init__(self, options: ImportOptions) -> None:
        self._default_s = options.default_estimate_s
        if self._default_s is not None and not 0 < self._default_s <= LARGEST:
            text = f"the default estimate is {self._default_s!r}, must be a number of seconds > 0"
            raise InputError(text)
        self._path = options.partitions
        self._partitions = {} if self._path is None else read_partitions(self._path)
        self._limits = self._kinds = self._defaults = self._unknown = 0
        self._names: set[str] = set()
        self._jobs = 0
        self.outlived = OutlivedEstimates(0, 0)

    def fill(self, jobs: pa.Table) -> pa.Table:
        """The jobs with estimates and GPU types."""
        if self._path is not None:
            jobs = self._fill_from_partitions(jobs)
        if self._default_s is not None and (nulls := jobs["estimate_s"].null_count):
            self._defaults += nulls
            filled = jobs["estimate_s"].fill_null(self._default_s)
            jobs = replace_column(jobs, "estimate_s", filled)
        self.outlived = self.outlived.join(count_outlived(jobs))
        return jobs

    def _fill_from_partitions(self, jobs: pa.Table) -> pa.Table:
        coded = jobs["queue"].combine_chunks().dictionary_encode()
        names = coded.dictionary.to_pylist()
        self._jobs += jobs.num_rows
        self._names.update(names)
        known = pa.array([name in self._partitions for name in names], pa.bool_())
        unknown = np.asarray(pc.invert(known.take(coded.indices).fill_null(False)))
        self._unknown += int(unknown.sum())
        rows = [self._partitions.get(name) for name in names]
        limits = pa.array([row and row.limit_s for row in rows], pa.float64())
        kinds = pa.array([row and row.gpu_type for row in rows], pa.string())
        for column, values in (("estimate_s", limits), ("gpu_type", kinds)):
            filled = pc.coalesce(jobs[column], values.take(coded.indices))
            count = jobs[column].null_count - filled.null_count
            if column == "estimate_s":
                self._limits += count
            else:
                self._kinds += count
            jobs = replace_column(jobs, column, filled)
        return jobs

    def notes(self) -> tuple[str, ...]:
        """What was filled, for the readers of the trace.

        Raises:
            TraceError: If no job is in a partition of the file.
        """
        lines = []
        if self._path is not None:
            if self._jobs and self._unknown == self._jobs:
                there = ", ".join(sorted(self._names)[:10]) or "none"
                known = ", ".join(sorted(self._partitions)[:10])
                text = f"names no partition of these jobs; it has {known}, the jobs have {there}"
                raise TraceError(text, self._path)
            lines += [
                f"{count} jobs without {what} have that of their partition ({self._path.name})."
                for count, what in ((self._limits, "an estimate"), (self._kinds, "a GPU type"))
                if count
            ]
            if self._unknown:
                text = f"{self._unknown} jobs are in no partition of {self._path.name}"
                absent = sorted(self._names - set(self._partitions))
                lines.append(text + (f": {', '.join(absent[:10])}." if absent else "."))
        if self._defaults:
            lines.append(
                f"{self._defaults} jobs without an estimate have {self._default_s:.15g} s "
                "(default estimate)."
            )
        return tuple(lines)
