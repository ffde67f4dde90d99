"""The cluster of a scenario."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.spec.schema import MixedCluster, UniformCluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower, NodeGroup
from wattkeeper.traces.library import store
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.live.search.processor import Processor


def cluster_spec(cluster: UniformCluster | MixedCluster) -> tuple[ClusterSpec, Trace | None]:
    """The cluster that a scenario describes, and the trace that its nodes are from, if any.

    Raises:
        InputError: If the trace knows no nodes, or the power of a type is not stated.
    """
    trace = None
    if isinstance(cluster, UniformCluster):
        per_node = cluster.gpus_per_node or cluster.gpus
        groups = [NodeGroup(cluster.gpu, cluster.gpus // per_node, per_node)]
        stated = {cluster.gpu: (cluster.idle_power_w, cluster.busy_power_w)}
    else:
        stated = {name: (power.idle_w, power.busy_w) for name, power in cluster.power.items()}
        if isinstance(cluster.nodes, str):
            trace = store.find(cluster.nodes)
            groups = _node_groups(trace)
        else:
            groups = [NodeGroup(group.gpu, group.count, group.gpus) for group in cluster.nodes]
        absent = sorted({group.gpu_type for group in groups} - set(stated))
        if absent:
            raise InputError(f"power: no entry for {', '.join(absent)}")
    sleep, preemption = cluster.sleep, cluster.preemption
    asleep_w = 0.0 if sleep is None else sleep.power_w
    spec = ClusterSpec(
        groups=tuple(groups),
        power={name: GpuPower(idle_w, busy_w, asleep_w) for name, (idle_w, busy_w) in
               stated.items()},
        pue=cluster.pue,
        power_cap_w=cluster.power_cap_w,
        sleep_after_s=None if sleep is None else sleep.after_s,
        wake_s=0.0 if sleep is None else sleep.wake_s,
        checkpoint_s=preemption.checkpoint_s,
        restore_s=preemption.restore_s,
    )  # fmt: skip
    return spec, trace


def search_processor(cluster: ClusterSpec) -> Processor:
    """The processor of this host that a search trains on.

    Raises:
        EnvironmentLacks: If a library that training needs is absent; it says how to install it.
        InputError: If this machine has no such processor.
    """
    absent = [name for name in ("torch", "safetensors", "numba", "sklearn") if not find_spec(name)]
    if absent:
        raise EnvironmentLacks(
            f"training for real needs {', '.join(absent)}: pip install 'wattkeeper[live,digits]'"
        )
    if cluster.gpus != 1:
        raise InputError(f"gpus: a search trains on one, not {cluster.gpus}")
    from wattkeeper.live.search.processor import find_processor

    return find_processor(cluster.gpu_types[0])


def _node_groups(trace: Trace) -> list[NodeGroup]:
    """The nodes of a trace, in groups of equal neighbours."""
    if "nodes" not in trace.tables:
        raise InputError(f"nodes: trace {trace.name!r} knows no nodes")
    table = trace.tables["nodes"]
    kinds = zip(table["gpu_type"].to_pylist(), table["gpus"].to_pylist(), strict=True)
    return [NodeGroup(kind, len(list(same)), gpus) for (kind, gpus), same in groupby(kinds)]
