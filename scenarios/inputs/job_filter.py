"""Which jobs of a trace a cluster can run, and what to say of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.scenarios.spec.wording import count, do, plural
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.traces.arrow import replace_column

FIRST = 3
"""Rows that are named of those that are wrong for one reason."""

TYPES = 5
"""GPU types that are named."""

LEAVE_OUT = "leave them out (--set workload.unusable=drop)"


class Reason(NamedTuple):
    """Why jobs cannot be replayed.

    Attributes:
        name: What they are, after "jobs": in the manifest.
        bad: Which ones, by row.
        say: What a number of them does, as "3 ask for type a100", given their rows.
        detail: What to say of one beyond that, given its row; may be empty.
        advice: What else to do but leave them out.
    """

    name: str
    bad: Bools
    say: Callable[[Ints], str]
    detail: Callable[[int], str] = lambda row: ""
    advice: tuple[str, ...] = ()


class FilteredJobs:
    """The jobs of a trace, less those that cannot be replayed; each counts for one reason.

    Attributes:
        all: Those of the trace.
        dropped: How many are left out, by reason.
    """

    def __init__(self, jobs: pa.Table, trace: str, cluster: ClusterSpec) -> None:
        self.all = jobs
        self._trace = trace
        self._cluster = cluster
        self._kept = np.ones(jobs.num_rows, dtype=bool)
        self._problems: list[str] = []
        self._advice: dict[str, None] = {}
        self.dropped: dict[str, int] = {}

    @property
    def jobs(self) -> pa.Table:
        """Those that are left."""
        return self.all if self._kept.all() else self.all.filter(pa.array(self._kept))

    @property
    def rows(self) -> Ints:
        """Their rows in the trace, from 0."""
        return np.flatnonzero(self._kept)

    def reject(self, reasons: Sequence[Reason]) -> None:
        """Take out what is wrong."""
        for reason in reasons:
            rows = np.flatnonzero(reason.bad & self._kept)
            if len(rows):
                self._problems.append(f"  {reason.say(rows)} (first: {self._first(reason, rows)})")
                self._advice |= dict.fromkeys(reason.advice)
                self._kept &= ~reason.bad
                self.dropped[reason.name] = len(rows)

    def _first(self, reason: Reason, rows: Ints) -> str:
        """One of them in full, and the rows of some more."""
        row, *more = rows[:FIRST].tolist()
        others = f"; {plural(len(more), 'row')} {', '.join(str(at + 1) for at in more)}"
        shown = first(self.all["job_id"][row].as_py(), row) + reason.detail(row)
        return shown + others * bool(more)

    def finish(self, drop: bool) -> None:
        """Refuse what was rejected unless it may be dropped, and to go on without any job.

        Raises:
            TraceError: It counts the jobs by reason.
        """
        if self._kept.any() and (drop or not self.dropped):
            return
        many, every = sum(self.dropped.values()), self.all.num_rows
        if not every:
            raise TraceError(Problem("it holds no jobs", self._trace))
        cluster = _shown(self._cluster)
        head = f"{many:,} of {every:,} jobs cannot be replayed on this cluster ({cluster})"
        advice = ", or ".join([*self._advice, *([LEAVE_OUT] if self._kept.any() else [])])
        lines = [f"{head}:", *self._problems, *([advice] if advice else [])]
        raise TraceError([Problem(lines[0], self._trace), *map(Problem, lines[1:])])


def first(job_id: str, row: int) -> str:
    """How messages name a job, given its row in the trace, from 0."""
    return f"row {row + 1}, job {job_id}"


def left_out(dropped: Mapping[str, int]) -> Iterator[str]:
    """A line for each reason for which jobs are left out."""
    for reason, number in dropped.items():
        yield f"Left out: {count(number, 'job')} {reason}."


def ran_on_any(ignored: Mapping[str, int]) -> Iterator[str]:
    """A line on GPU types that jobs ask for in vain, if there are any."""
    if ignored:
        shown = _by_type(Counter(ignored))
        yield f"GPU types are ignored: {shown}, and run on any (workload.gpu_types)."


def on_any_type(jobs: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """The jobs without the GPU types that they ask for, and how many asked for each."""
    types = jobs["gpu_type"]
    if types.null_count == len(types):
        return jobs, {}
    free = replace_column(jobs, "gpu_type", pa.nulls(len(jobs), types.type))
    counts = Counter(kind for kind in types.to_pylist() if kind is not None)
    return free, dict(counts.most_common())


def at_odds(jobs: pa.Table, cluster: ClusterSpec, recorded: bool) -> list[Reason]:
    """Why jobs cannot be replayed, whatever they would draw.

    Args:
        jobs: Of a trace.
        cluster: Where they would run.
        recorded: Whether they hold their GPUs for as long as the trace says.
    """
    duration = jobs["duration_s"].fill_null(-1.0).to_numpy()
    plain = np.asarray(jobs["workload"].is_null())
    gpus = jobs["gpus"].to_numpy()
    types = jobs["gpu_type"]
    asked = types.dictionary_encode(null_encoding="encode").combine_chunks()
    by_type = [cluster.most_gpus(kind) for kind in asked.dictionary.to_pylist()]
    most = np.array(by_type, dtype=np.int64)[asked.indices.to_numpy()]

    def too_large(row: int) -> str:
        kind = types[row].as_py()
        of = f" of type {_named(kind)}" if kind else " of one type" * (len(cluster.gpu_types) > 1)
        return f": {count(int(gpus[row]), 'GPU')}, the cluster has {most[row]}{of}"

    return [
        Reason(
            "of a GPU type that the cluster lacks",
            most == 0,
            lambda rows: _by_type(Counter(types[row].as_py() or "" for row in rows.tolist())),
            advice=("list these types under cluster.nodes",
                    "run jobs on any type (--set workload.gpu_types=ignore)"),
        ),
        Reason(
            "larger than the cluster",
            gpus > most,
            lambda rows: f"{do(len(rows), 'ask')} for more GPUs than there are",
            too_large,
            ("give the cluster more GPUs",),
        ),
        Reason(
            "without a recorded duration",
            plain & (duration < 0),
            lambda rows: f"{_have(len(rows))} no recorded duration",
        ),
        Reason(
            "without a duration > 0",
            ~plain & (duration <= 0) & recorded,
            lambda rows: f"{_have(len(rows))} no recorded duration > 0 s, which occupancy: "
                         "recorded needs",
        ),
    ]  # fmt: skip


def check_groups(jobs: pa.Table, trace: str) -> None:
    """Refuse jobs that train something else than others of their group.

    Raises:
        TraceError: One problem for each such job.
    """
    if jobs["group_id"].null_count == len(jobs) or jobs["workload"].null_count == len(jobs):
        return
    trained: dict[str, str] = {}
    problems = []
    columns = (jobs[name].to_pylist() for name in ("group_id", "workload"))
    for row, (group, workload) in enumerate(zip(*columns, strict=True)):
        if group is None or workload is None:
            continue
        if trained.setdefault(group, workload) != workload:
            what = (
                f"job {jobs['job_id'][row].as_py()!r} trains {workload!r}, others of its group "
                f"{group!r} train {trained[group]!r}; the jobs of a group recur, so they train the "
                "same"
            )
            problems.append(Problem(what, f"{trace}/jobs.parquet, row {row + 1}"))
    if problems:
        raise TraceError(problems)


def _by_type(counts: Counter[str]) -> str:
    """How many jobs ask for which GPU types: the most frequent ones, and the sum of the others."""
    named = counts.most_common(TYPES)
    said = [f"{do(named[0][1], 'ask')} for type {_named(named[0][0])}"]
    said += [f"{number:,} for type {_named(kind)}" for kind, number in named[1:]]
    if len(counts) > TYPES:
        others = counts.total() - sum(number for _, number in named)
        said.append(f"{others:,} for {len(counts) - TYPES} others")
    return ", ".join(said)


def _named(gpu_type: str) -> str:
    return gpu_type.replace("|", " or ")


def _shown(cluster: ClusterSpec) -> str:
    return ", ".join(f"{name} x{cluster.most_gpus(name)}" for name in cluster.gpu_types)


def _have(number: int) -> str:
    return f"{number:,} {'has' if number == 1 else 'have'}"
