"""The partitions of a log: the GPU types of their nodes, as far as jobs show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.sim.cluster.cluster_spec import join_types

Partitions = Mapping[str, tuple[str, ...]]
"""GPU types of the nodes of each partition, by name."""


def find_partitions(jobs: pa.Table, described: Sequence[str]) -> Partitions:
    """The partitions of a log, if they form several queues; else none.

    The GPU types of a partition are those that its jobs ask for; all, if none of them names any
    that nodes have. Types that no job names belong to partitions in which some jobs name none.
    Partitions that share a type share a queue, and so do types that a job of no partition may run
    on. Types that no node has do not count, nor do jobs that never ran.

    Args:
        jobs: The jobs of the log.
        described: The GPU types of the nodes.
    """
    ran = jobs.filter(pc.is_valid(jobs["duration_s"]))
    rows = ran.group_by(["queue", "gpu_type"], use_threads=False).aggregate([]).to_pylist()
    asked: dict[str, set[str]] = {}
    others: list[set[str]] = []
    open_to_all = set[str]()
    for row in rows:
        text = row["gpu_type"]
        names = set[str]() if text is None else set(text.split("|")) & set(described)
        if row["queue"] is None:
            others.append(names or set(described))
            continue
        asked.setdefault(row["queue"], set()).update(names)
        if text is None:
            open_to_all.add(row["queue"])
    unnamed = set(described).difference(*asked.values(), *others)
    partitions: dict[str, tuple[str, ...]] = {}
    for name in sorted(asked):
        types = (asked[name] or set(described)) | (unnamed if name in open_to_all else set())
        partitions[name] = tuple(each for each in described if each in types)
    if len(join_types(described, (*partitions.values(), *others))) == 1:
        return {}
    return partitions


def describe_queues(partitions: Partitions, described: Sequence[str]) -> str:
    """The partitions of each queue in words."""
    queues = []
    for types in join_types(described, partitions.values()):
        names = [name for name, own in partitions.items() if own[0] in types]
        queues.append(f"{', '.join(names)} ({', '.join(types)})" if names else ", ".join(types))
    return f"{len(queues)} queues, each of which schedulers order by itself: {'; '.join(queues)}."
