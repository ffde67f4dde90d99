"""The partitions of a log: the GPU types of their nodes, as far as jobs show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.points.job import WHOLE
from wattkeeper.sim.cluster.cluster_spec import join_types

Partitions = Mapping[str, tuple[str, ...]]
"""GPU types of the nodes of each partition, by name."""

STRAY: Final = 0.02
"""A partition has no GPU type that less of its GPU time names, and less of the time that names that
type."""


def find_partitions(jobs: pa.Table, described: Sequence[str]) -> Partitions:
    """The partitions of a log, if they form several queues; else none.

    The GPU types of a partition are those that its jobs ask for; all, if none of them names any
    that nodes have. Types that no job names belong to partitions in which some jobs name none.
    Partitions that share a type share a queue, and so do types that a job of no partition may run
    on. Types that no node has do not count, nor do jobs that never ran, nor types that hardly any
    job of a partition names (`STRAY`).

    Args:
        jobs: The jobs of the log.
        described: The GPU types of the nodes.
    """
    partitions, others = _read_partitions(jobs, described)
    if len(join_types(described, (*partitions.values(), *others))) == 1:
        return {}
    return partitions


def explain_one_queue(jobs: pa.Table, described: Sequence[str]) -> str:
    """Why all partitions of a log share one queue; empty if it has only one, or nodes of one type.

    `jobs` and `described`: as of `find_partitions`, which found none.
    """
    named = jobs.filter(pc.is_valid(jobs["gpu_type"]))
    partitions, _ = _read_partitions(named, described)
    if len(described) == 1 or len(partitions) < 2:
        return ""
    if find_partitions(named, described):
        why = "those that name no GPU type may run on the nodes of any partition"
    else:
        users = {
            gpu: [name for name, types in partitions.items() if gpu in types] for gpu in described
        }
        shared = [f"{gpu} ({', '.join(names)})" for gpu, names in users.items() if len(names) > 1]
        why = f"jobs of several partitions ask for the same GPU types: {'; '.join(shared)}"
    return f"Note: all jobs wait in one queue, for {why}."


def _read_partitions(jobs: pa.Table, described: Sequence[str]) -> tuple[Partitions, list[set[str]]]:
    """The types of each partition, and of each kind of jobs without one."""
    times = _gpu_times(jobs, described)
    of_types = {gpu: sum(own.get(gpu, 0.0) for own in times.values()) for gpu in described}
    asked: dict[str, set[str]] = {}
    for name, own in times.items():
        whole = sum(own.values())
        asked[name] = {
            gpu
            for gpu, time_s in own.items()
            if time_s >= STRAY * whole or time_s >= STRAY * of_types[gpu]
        }
    ran = jobs.filter(pc.is_valid(jobs["duration_s"]))
    rows = ran.group_by(["queue", "gpu_type"], use_threads=False).aggregate([]).to_pylist()
    others = [
        _known(row["gpu_type"], described) or set(described) for row in rows if row["queue"] is None
    ]
    open_to_all = {row["queue"] for row in rows if row["gpu_type"] is None}
    names = {row["queue"] for row in rows} - {None}
    unnamed = set(described).difference(*asked.values(), *others)
    partitions: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        types = asked.get(name, set()) or set(described)
        types = types | (unnamed if name in open_to_all else set())
        partitions[name] = tuple(each for each in described if each in types)
    return partitions, others


def _gpu_times(jobs: pa.Table, described: Sequence[str]) -> dict[str, dict[str, float]]:
    """GPU time (s) of the jobs of each partition that name each type; of several, each."""
    held = pc.multiply(jobs["gpus"].cast(pa.float64()), jobs["gpu_milli"].cast(pa.float64()))
    times_s = pc.divide(pc.multiply(held, jobs["duration_s"]), WHOLE)
    grouped = jobs.append_column("gpu_s", times_s).group_by(
        ["queue", "gpu_type"], use_threads=False
    )
    times: dict[str, dict[str, float]] = {}
    for row in grouped.aggregate([("gpu_s", "sum")]).to_pylist():
        if row["queue"] is None or row["gpu_s_sum"] is None:
            continue
        own = times.setdefault(row["queue"], {})
        for gpu in _known(row["gpu_type"], described):
            own[gpu] = own.get(gpu, 0.0) + row["gpu_s_sum"]
    return times


def _known(text: str | None, described: Iterable[str]) -> set[str]:
    """The GPU types of nodes that a job names."""
    return set() if text is None else set(text.split("|")) & set(described)


def describe_queues(partitions: Partitions, described: Sequence[str]) -> str:
    """The partitions of each queue in words."""
    queues = []
    for types in join_types(described, partitions.values()):
        names = [name for name, own in partitions.items() if own[0] in types]
        queues.append(f"{', '.join(names)} ({', '.join(types)})" if names else ", ".join(types))
    return f"{len(queues)} queues, each of which schedulers order by itself: {'; '.join(queues)}."
