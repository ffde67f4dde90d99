"""Partitions of a cluster: the nodes that their jobs may run on, and jobs that have none."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.scenarios.inputs.job_filter import TYPES, Reason
from wattkeeper.scenarios.spec.wording import count, count_verb
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.traces.arrow import replace_column


def narrow_types(jobs: pa.Table, cluster: ClusterSpec) -> pa.Table:
    """The jobs with the GPU types of their partition, as far as they ask for these.

    Jobs of no partition keep the types that they ask for. The text is empty where none is left, or
    where the cluster lacks the partition.
    """
    if not cluster.partitions:
        return jobs
    kinds = _Kinds.of(jobs)
    texts = [_narrow(partition, text, cluster) for partition, text in kinds.values]
    return replace_column(jobs, "gpu_type", pa.array(texts, pa.string()).take(kinds.rows))


def find_misplaced(jobs: pa.Table, cluster: ClusterSpec) -> list[Reason]:
    """Reasons why jobs have no place in the partitions of a cluster."""
    if not cluster.partitions:
        return []
    kinds = _Kinds.of(jobs)
    gpus = jobs["gpus"].to_numpy()
    narrowed = [_narrow(partition, text, cluster) for partition, text in kinds.values]
    most = np.array([cluster.most_gpus(text) for text in narrowed], dtype=np.int64)[kinds.rows]
    unlisted = np.array(
        [
            partition is not None and partition not in cluster.partitions
            for partition, _ in kinds.values
        ]
    )[kinds.rows]
    undecided = np.array(
        [
            partition is None and len(_queues_of(text, cluster)) > 1
            for partition, text in kinds.values
        ]
    )[kinds.rows]

    def name(row: int) -> str:
        return f": partition {jobs['queue'][row].as_py()!r}"

    names = Counter(jobs["queue"].filter(pa.array(unlisted)).to_pylist())
    listed = ", ".join(map(str, dict(names.most_common(TYPES))))
    of_none = "of no partition, where several have a queue of their own"
    of_type = "of a GPU type that the nodes of their partition lack"
    larger = "larger than their partition"
    return [
        Reason(
            f"of a partition that the cluster lacks ({listed})",
            unlisted,
            lambda rows: (
                f"{count_verb(len(rows), 'name')} a partition that the cluster lacks ({listed})"
            ),
            advice=("list these partitions under cluster.partitions",),
        ),
        Reason(
            of_none,
            undecided,
            lambda rows: (
                f"{count(len(rows), 'job')} {of_none}, may run on GPU types of several queues"
            ),
            advice=("leave cluster.partitions out: then all jobs wait in one queue",),
        ),
        Reason(
            of_type,
            most == 0,
            lambda rows: f"{count(len(rows), 'job')} {of_type}",
            name,
            ("list these types for the partition (cluster.partitions)",),
        ),
        Reason(
            larger,
            gpus > most,
            lambda rows: f"{count(len(rows), 'job')} {larger}",
            lambda row: (
                f"{name(row)}: {count(int(gpus[row]), 'GPU')}, it has {most[row]} of one type"
            ),
            ("give the partition more GPUs",),
        ),
    ]


class _Kinds(NamedTuple):
    """Partitions and GPU types that occur together, and which of them each job has."""

    values: list[tuple[str | None, str | None]]
    rows: Ints

    @classmethod
    def of(cls, jobs: pa.Table) -> _Kinds:
        names, types = (
            jobs[column].dictionary_encode(null_encoding="encode").combine_chunks()
            for column in ("queue", "gpu_type")
        )
        width = max(1, len(types.dictionary))
        codes = names.indices.to_numpy().astype(np.int64) * width + types.indices.to_numpy()
        found, rows = np.unique(codes, return_inverse=True)
        values = [
            (names.dictionary[code // width].as_py(), types.dictionary[code % width].as_py())
            for code in found.tolist()
        ]
        return cls(values, rows)


def _narrow(partition: str | None, text: str | None, cluster: ClusterSpec) -> str | None:
    """The GPU types of a partition among those of a text, separated by `|`."""
    if partition is None:
        return text
    types = cluster.partitions.get(partition, ())
    asked = types if text is None else text.split("|")
    return "|".join(name for name in asked if name in types)


def _queues_of(text: str | None, cluster: ClusterSpec) -> set[int]:
    """The queues of the GPU types of a text."""
    names = {cluster.gpu_types[index] for index in cluster.types_allowed(text)}
    return {number for number, types in enumerate(cluster.queues) if names & set(types)}
