"""What tests of policies of one's own need: `wattkeeper policy new` writes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.contract.check import check_policy_file
from wattkeeper.scenarios.contract.rehearsal import Rehearsal
from wattkeeper.scenarios.contract.scripted import GPU, ScriptedContext, job, profile
from wattkeeper.scenarios.contract.steps import LONG
from wattkeeper.scenarios.spec.policy_files import PolicyFile, kind_of, load_policy_file
from wattkeeper.scenarios.spec.yaml_document import read_text
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

__all__ = [
    "LONG",
    "Rehearsal",
    "ScriptedContext",
    "check_policy_file",
    "job",
    "load_policy",
    "make_cluster",
    "profile",
]


def load_policy(path: str | Path, kind: str | None = None) -> type[Any]:
    """The config class of a policy file: the one of a kind, or the only one.

    Raises:
        WattkeeperError: If the file cannot be used, or has no such policy, or several.
    """
    file = PolicyFile(str(path), str(path), read_text(Path(path)))
    found = {kind_of(part): part for _, part in load_policy_file(file)}
    if kind is None and len(found) == 1:
        return next(iter(found.values()))
    if kind not in found:
        meant = did_you_mean(kind or "", found)
        raise InputError(f"found no policy {kind!r}{meant}; there is {', '.join(found)}", path)
    return found[kind]


def make_cluster(nodes: int, gpus_per_node: int) -> Cluster:
    """An idle cluster, as `Place` sees it."""
    return Cluster(ClusterSpec.uniform(GPU, nodes, gpus_per_node, 20.0, 250.0))
