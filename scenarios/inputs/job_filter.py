"""Finds the jobs of a trace that a cluster can run, and explains why not the others."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.spec.wording import count, count_verb, plural
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.traces.arrow import replace_column

FIRST = 3
"""Rows that a message names of those that are wrong for one reason."""

TYPES = 5
"""GPU types that a message names."""

COLUMNS = {
    "duration_s": "recorded duration",
    "estimate_s": "estimate",
    "start_time_s": "recorded start",
}
"""Names of columns in messages."""

IMPORT_DURATIONS = "import the durations (format csv: --map duration_s=COLUMN)"
LEAVE_OUT = "leave them out (--set workload.unusable=drop)"


class Reason(NamedTuple):
    """Why jobs cannot be replayed.

    Attributes:
        name: Follows "jobs" in the manifest, as "larger than the cluster".
        bad: Mask of the jobs, shape (jobs,).
        explain: Text for some of them, as "3 ask for type a100", given their rows.
        detail: More on one of them, given its row; may be empty.
        advice: Remedies other than to leave them out.
    """

    name: str
    bad: Bools
    explain: Callable[[Ints], str]
    detail: Callable[[int], str] = lambda row: ""
    advice: tuple[str, ...] = ()


class FilteredJobs:
    """The jobs of a trace that all variants can run: what one must leave out, all leave out.

    Attributes:
        all: All jobs of the trace.
        dropped: Number of rejected jobs, by reason; each counts for its first one.
    """

    def __init__(self, jobs: pa.Table, trace: str) -> None:
        self.all = jobs
        self.dropped: dict[str, int] = {}
        self._trace = trace
        self._accepted = np.ones(jobs.num_rows, dtype=bool)
        self._filters: list[_ClusterFilter] = []

    @property
    def accepted(self) -> Bools:
        """Mask of the jobs that were not rejected."""
        return self._accepted

    @property
    def jobs(self) -> pa.Table:
        """The jobs that were not rejected."""
        return self.all if self._accepted.all() else self.all.filter(pa.array(self._accepted))

    @property
    def rows(self) -> Ints:
        """The rows of these jobs in the trace, from 0."""
        return np.flatnonzero(self._accepted)

    @property
    def dropped_for(self) -> dict[str, dict[str, int]]:
        """Number of jobs that some variants cannot run, by variants and reason.

        Empty if no variant can run any of the rejected jobs.
        """
        if all((own.accepted == self._accepted).all() for own in self._filters):
            return {}
        return {", ".join(own.cluster.names): own.dropped for own in self._filters if own.dropped}

    def reject(self, cluster: UsedCluster, reasons: Sequence[Reason]) -> None:
        """Reject jobs that cannot be replayed on a cluster."""
        own = next((known for known in self._filters if known.cluster is cluster), None)
        if own is None:
            own = _ClusterFilter(cluster, np.ones(self.all.num_rows, dtype=bool))
            self._filters.append(own)
        for reason in reasons:
            rows = np.flatnonzero(reason.bad & own.accepted)
            if len(rows):
                own.problems.append(
                    f"  {reason.explain(rows)} (first: {self._describe_first(reason, rows)})"
                )
                own.advice |= dict.fromkeys(reason.advice)
                own.accepted &= ~reason.bad
                own.dropped[reason.name] = len(rows)
                first = int(self._accepted[rows].sum())
                if first:
                    self.dropped[reason.name] = self.dropped.get(reason.name, 0) + first
                self._accepted &= ~reason.bad

    def _describe_first(self, reason: Reason, rows: Ints) -> str:
        """The first of some jobs in full, and the rows of some more."""
        row, *more = rows[:FIRST].tolist()
        others = f"; {plural(len(more), 'row')} {', '.join(str(other + 1) for other in more)}"
        shown = name_job(self.all["job_id"][row].as_py(), row) + reason.detail(row)
        return shown + others * bool(more)

    def finish(self, drop: bool) -> None:
        """End the filtering.

        Args:
            drop: Whether rejected jobs may be left out.

        Raises:
            TraceError: If jobs were rejected that may not be left out, or no job is left; it counts
                the rejected jobs by variant and reason.
        """
        if self._accepted.any() and (drop or not self.dropped):
            return
        every = self.all.num_rows
        if not every:
            raise TraceError("it holds no jobs", self._trace)
        lines: list[str] = []
        advice: dict[str, None] = {}
        for own in self._filters:
            if own.dropped:
                many = sum(own.dropped.values())
                lines += [
                    f"{own.cluster.label}{many:,} of {every:,} jobs cannot be replayed on this "
                    f"cluster ({_describe(own.cluster.spec)}):",
                    *own.problems,
                ]
                advice |= own.advice
        remedies = [*advice, *([LEAVE_OUT] if self._accepted.any() else [])]
        lines += [", or ".join(remedies)] if remedies else []
        raise TraceError([Problem(lines[0], self._trace), *map(Problem, lines[1:])])


class _ClusterFilter:
    """The jobs of a trace that a cluster can run, and what is wrong with the others.

    Attributes:
        cluster: The cluster.
        accepted: Mask of the jobs that it can run.
        dropped: Number of the others, by reason; each counts for its first one.
        problems: A line for each reason.
        advice: Remedies.
    """

    def __init__(self, cluster: UsedCluster, accepted: Bools) -> None:
        self.cluster = cluster
        self.accepted = accepted
        self.dropped: dict[str, int] = {}
        self.problems: list[str] = []
        self.advice: dict[str, None] = {}


def name_job(job_id: str, row: int) -> str:
    """How messages name a job, given its row in the trace, from 0."""
    return f"row {row + 1}, job {job_id}"


def describe_dropped(
    dropped: Mapping[str, int], dropped_for: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """A line for each reason why jobs are left out, and for each variant that cannot run them."""
    of_all = " of all variants" * bool(dropped_for)
    for reason, number in dropped.items():
        yield f"Left out{of_all}: {count(number, 'job')} {reason}."
    for variants, reasons in dropped_for.items():
        parts = "; ".join(f"{count(number, 'job')} {reason}" for reason, number in reasons.items())
        yield f"Left out because of {variants}: {parts}."


def describe_ignored_types(ignored: Mapping[str, int]) -> Iterator[str]:
    """A line on the GPU types that jobs ask for and that are ignored, if there are any."""
    if ignored:
        shown = _by_type(Counter(ignored))
        yield f"GPU types are ignored: {shown}, and run on any (workload.gpu_types)."


def ignore_gpu_types(jobs: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """The jobs without the GPU types that they ask for, and how many asked for each."""
    types = jobs["gpu_type"]
    if types.null_count == len(types):
        return jobs, {}
    free = replace_column(jobs, "gpu_type", pa.nulls(len(jobs), types.type))
    counts = Counter(kind for kind in types.to_pylist() if kind is not None)
    return free, dict(counts.most_common())


def find_unusable(jobs: pa.Table, cluster: ClusterSpec, recorded: bool) -> list[Reason]:
    """Reasons, other than a power cap, why jobs cannot be replayed.

    `recorded`: whether they hold their GPUs for their recorded duration.
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
        of = f" of type {_label(kind)}" if kind else " of one type" * (len(cluster.gpu_types) > 1)
        return f": {count(int(gpus[row]), 'GPU')}, the cluster has {most[row]}{of}"

    absent = Counter(types.filter(pa.array(most == 0)).to_pylist())
    listed = ", ".join(str(kind) for kind, _ in absent.most_common(TYPES))
    return [
        Reason(
            f"of a GPU type that the cluster lacks ({listed})",
            most == 0,
            lambda rows: _by_type(Counter(types[row].as_py() or "" for row in rows.tolist())),
            advice=(
                "list these types under cluster.nodes",
                "run jobs on any type (--set workload.gpu_types=ignore)",
            ),
        ),
        Reason(
            "larger than the cluster",
            gpus > most,
            lambda rows: f"{count_verb(len(rows), 'ask')} for more GPUs than there are",
            too_large,
            ("give the cluster more GPUs",),
        ),
        Reason(
            "without a recorded duration",
            plain & (duration < 0),
            lambda rows: f"{_have(len(rows))} no recorded duration",
            advice=(IMPORT_DURATIONS, "estimate those of models (workload.durations)"),
        ),
        Reason(
            "without a duration > 0",
            ~plain & (duration <= 0) & recorded,
            lambda rows: (
                f"{_have(len(rows))} no recorded duration > 0 s, which occupancy: recorded needs"
            ),
            advice=(IMPORT_DURATIONS,),
        ),
    ]


def find_incomplete(jobs: pa.Table, configs: Sequence[PolicyConfig]) -> list[Reason]:
    """Reasons why policies cannot decide on some of the jobs: columns that these lack.

    A column that all jobs lack is none: then the policy cannot be used.
    """
    users = {column: config.kind for config in configs for column in config.needed_columns}
    reasons = []
    for column, kind in users.items():
        absent = np.asarray(jobs[column].is_null())
        if not absent.all():
            what = f"without the {COLUMNS.get(column, column)} that {kind} needs"
            reasons.append(Reason(what, absent, partial(_count_jobs, what)))
    return reasons


def _count_jobs(what: str, rows: Ints) -> str:
    return f"{count(len(rows), 'job')} {what}"


def check_groups(jobs: pa.Table, trace: str) -> None:
    """Refuse jobs that train another workload than others of their group.

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
    """Number of jobs that ask for each GPU type: the most frequent, and the sum of the rest."""
    named = counts.most_common(TYPES)
    parts = [f"{count_verb(named[0][1], 'ask')} for type {_label(named[0][0])}"]
    parts += [f"{number:,} for type {_label(kind)}" for kind, number in named[1:]]
    if len(counts) > TYPES:
        others = counts.total() - sum(number for _, number in named)
        parts.append(f"{others:,} for {len(counts) - TYPES} others")
    return ", ".join(parts)


def _label(gpu_type: str) -> str:
    return gpu_type.replace("|", " or ")


def _describe(cluster: ClusterSpec) -> str:
    return ", ".join(f"{name} x{cluster.most_gpus(name)}" for name in cluster.gpu_types)


def _have(number: int) -> str:
    return f"{number:,} {'has' if number == 1 else 'have'}"
