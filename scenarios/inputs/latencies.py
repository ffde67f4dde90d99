"""Latencies of trainings: stated by a scenario, or recorded with the profiles."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.spec.sections.cluster import Facility
from wattkeeper.scenarios.spec.sections.settings import LatenciesSection as Stated
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.sim.replay.latencies import AllLatencies, Latencies
from wattkeeper.traces.trace import Trace

NO_LATENCIES: Final[AllLatencies] = {}

Rows = Sequence[Mapping[str, Any]]


def latencies_of(
    stated: Stated | str, trace: Trace, profiles: Profiles
) -> tuple[AllLatencies, Rows]:
    """The latencies of each profile that is replayed, and the recorded rows that they are from.

    A text as `stated`: use the recorded ones.

    Raises:
        InputError: If recorded ones are asked for, and none were recorded.
    """
    if isinstance(stated, Stated):
        return dict.fromkeys(profiles, Latencies(**stated.model_dump())), ()
    latencies: dict[tuple[str, int, str], Latencies] = {}
    rows: list[Mapping[str, Any]] = []
    for row in trace.parameters.get("latencies", ()):
        key = row["workload"], row["gpus"], row["gpu_type"]
        if key in profiles:
            rows.append(row)
            latencies[key] = Latencies(*(float(row[name] or 0.0) for name in Latencies._fields))
    absent = [key for key in profiles if key not in latencies]
    if absent:
        workload, gpus, gpu_type = absent[0]
        raise InputError(
            f"trace {trace.name!r} has no recorded latencies of {workload!r} on {gpus} x "
            f"{gpu_type}: record it (wattkeeper record), or state them (latencies: {{start_s: 2}})"
        )
    return latencies, rows


def with_preemption(cluster: ClusterSpec, stated: Facility, recorded: Rows) -> ClusterSpec:
    """The cluster with the longest recorded checkpoint and restore, if none is stated."""
    if not recorded or "preemption" in stated.model_fields_set:
        return cluster
    checkpoint_s, restore_s = (
        max(float(row[name] or 0.0) for row in recorded) for name in ("checkpoint_s", "restore_s")
    )
    return dataclasses.replace(cluster, checkpoint_s=checkpoint_s, restore_s=restore_s)
