"""The cluster of a scenario."""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.losses import read_losses
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.scenarios.spec.loading import LoadedScenario, nodes_path
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.cluster import (
    Facility,
    FollowedCap,
    FollowedPrice,
    MixedCluster,
    Rent,
    UniformCluster,
    fault_of_partition,
)
from wattkeeper.scenarios.spec.sections.gpu import NameOrFacts, find_model
from wattkeeper.scenarios.spec.sections.workload import ReplayedWorkload
from wattkeeper.scenarios.spec.wording import plural
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.cluster.cluster_spec import (
    CapSignal,
    ClusterSpec,
    GpuPower,
    NodeGroup,
    NodeRent,
)
from wattkeeper.traces.gpus.model import GpuModel
from wattkeeper.traces.library import store
from wattkeeper.traces.library.folder import read
from wattkeeper.traces.trace import Trace

CLUSTER: Final = "cluster"
"""Key of a cluster in a scenario and in its variants."""


class UsedCluster(NamedTuple):
    """A cluster that variants run on.

    Attributes:
        spec: Its specification.
        stated: The section that describes it, overrides of the variant included.
        variants: The variants that run on it.
        path: Its place in the scenario.
        recorded: Whether jobs hold their GPUs there for their recorded duration.
        of_some: Whether other variants run on another cluster.
    """

    spec: ClusterSpec
    stated: Facility
    variants: tuple[str, ...]
    path: tuple[str, ...]
    recorded: bool
    of_some: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The variants, without further cases of them."""
        return tuple(name for name in self.variants if base_of(name) not in self.variants)

    @property
    def label(self) -> str:
        """Names the variants in messages; empty if all variants run on it."""
        listed = ", ".join(map(repr, self.names))
        return f"{plural(len(self.names), 'variant')} {listed}: " * self.of_some

    def where(self, document: YamlDocument, *keys: str) -> str:
        """The place of a key of it: in the variant if it overrides the key, or the scenario's."""
        own = (*self.path, *keys)
        inherited = document.known(own) != own and document.known((CLUSTER, *keys))[1:] == keys
        return document.where((CLUSTER, *keys)) if inherited else document.where_inside(own)


def used_clusters(loaded: LoadedScenario) -> tuple[list[UsedCluster], list[Trace]]:
    """The different clusters of a scenario's variants, and the traces that their nodes are from.

    Raises:
        InputError: See `cluster_spec`; the message names the place in the scenario.
    """
    scenario, document = loaded
    different: list[tuple[ClusterSpec, bool]] = []
    variants: list[list[str]] = []
    traces: dict[Path, Trace] = {}
    for variant in scenario.variants:
        stated = scenario.variants[variant].cluster or scenario.cluster
        with locate_errors(document, *_path(scenario, variant)):
            if stated.energy_of is not None and not isinstance(scenario.workload, ReplayedWorkload):
                kind = scenario.workload.kind
                raise InputError(f"energy_of: it is for jobs with profiles, not for kind: {kind}")
            spec = cluster_spec(stated, traces, document.folder_of(nodes_path(document, variant)))
        key = spec, "preemption" in stated.model_fields_set
        if key not in different:
            different.append(key)
            variants.append([])
        variants[different.index(key)].append(variant)
    clusters = [
        UsedCluster(
            spec=spec,
            stated=scenario.variants[names[0]].cluster or scenario.cluster,
            variants=tuple(names),
            path=_path(scenario, names[0]),
            recorded=any(loaded.variants[name].occupancy == "recorded" for name in names),
            of_some=len(different) > 1,
        )
        for (spec, _), names in zip(different, variants, strict=True)
    ]
    return clusters, list(traces.values())


def _path(scenario: Scenario, variant: str) -> tuple[str, ...]:
    """The place of a variant's cluster in the scenario."""
    overrides = scenario.variants[variant].cluster is not None
    return ("variants", variant, CLUSTER) if overrides else (CLUSTER,)


def cluster_spec(
    cluster: UniformCluster | MixedCluster, traces: dict[Path, Trace], beside: Path = Path()
) -> ClusterSpec:
    """The cluster that a section describes; `traces` gets the trace that its nodes are from.

    The path of a trace is relative to the folder `beside`.

    Raises:
        InputError: If the trace knows no nodes, or the power of a type is not stated.
    """
    if isinstance(cluster, UniformCluster):
        per_node = cluster.gpus_per_node or cluster.gpus
        groups = [NodeGroup(cluster.gpu, cluster.gpus // per_node, per_node)]
        partitions: dict[str, tuple[str, ...]] = {}
        stated = {cluster.gpu: (cluster.idle_power_w, cluster.busy_power_w)}
    else:
        stated = {name: (power.idle_w, power.busy_w) for name, power in cluster.power.items()}
        partitions = dict(cluster.partitions or {})
        if isinstance(cluster.nodes, str):
            folder = store.locate(cluster.nodes, beside)
            trace = traces.get(folder) or read(folder)
            traces[folder] = trace
            groups = _node_groups(trace)
        else:
            groups = [NodeGroup(group.gpu, group.count, group.gpus) for group in cluster.nodes]
        absent = sorted({group.gpu_type for group in groups} - set(stated))
        if absent:
            raise InputError(f"power: no entry for {', '.join(absent)}")
        for name, named in partitions.items():
            if fault := fault_of_partition(name, named, {group.gpu_type for group in groups}):
                raise InputError(f"partitions: {fault}")
    sleep, preemption, cap = cluster.sleep, cluster.preemption, cluster.power_cap_w
    asleep_w = 0.0 if sleep is None else sleep.power_w
    return ClusterSpec(
        groups=tuple(groups),
        power={
            name: GpuPower(idle_w, busy_w, asleep_w) for name, (idle_w, busy_w) in stated.items()
        },
        pue=cluster.pue,
        power_cap_w=math.inf if isinstance(cap, FollowedCap) else cap,
        cap=CapSignal(cap.signal, cap.obey, cap.share) if isinstance(cap, FollowedCap) else None,
        sleep_after_s=None if sleep is None else sleep.after_s,
        wake_s=0.0 if sleep is None else sleep.wake_s,
        checkpoint_s=preemption.checkpoint_s,
        restore_s=preemption.restore_s,
        losses=None if cluster.losses is None else read_losses(cluster.losses, traces, beside),
        rent=None if cluster.rent is None else _node_rent(cluster.rent),
        partitions=partitions,
    )


def _node_rent(rent: Rent) -> NodeRent:
    """What nodes cost, where prices that follow a signal are its name."""
    node_hour, on_demand = (
        price.signal if isinstance(price, FollowedPrice) else price
        for price in (rent.node_hour, rent.on_demand)
    )
    assert node_hour is not None  # the section states it
    return NodeRent(node_hour, on_demand, rent.currency)


def _node_groups(trace: Trace) -> list[NodeGroup]:
    """The nodes of a trace, in groups of equal neighbours."""
    if "nodes" not in trace.tables:
        raise InputError(f"nodes: trace {trace.name!r} knows no nodes")
    table = trace.tables["nodes"]
    kinds = zip(table["gpu_type"].to_pylist(), table["gpus"].to_pylist(), strict=True)
    return [NodeGroup(kind, len(list(same)), gpus) for (kind, gpus), same in groupby(kinds)]


def stated_model(used: UsedCluster, gpu_type: str) -> NameOrFacts | None:
    """The GPU type, or the facts, that a cluster states for one of its types."""
    stated = used.stated
    if isinstance(stated, UniformCluster):
        return stated.gpu_model
    assert isinstance(stated, MixedCluster)
    return stated.power[gpu_type].model


def model_of(used: UsedCluster, gpu_type: str) -> GpuModel | None:
    """The power model of a GPU type of a cluster; None if none is known."""
    idle_w = used.spec.power[gpu_type].idle_w
    return find_model(stated_model(used, gpu_type), gpu_type, idle_w)
