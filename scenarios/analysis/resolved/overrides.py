"""What variants override of power limits, cluster and workload, for pages and the terminal."""

from collections.abc import Iterator
from typing import Any

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.tune.power_fraction import count_up_to
from wattkeeper.scenarios.analysis.resolved.differences import list_differences
from wattkeeper.scenarios.analysis.resolved.key_words import describe_setting, key_words
from wattkeeper.scenarios.analysis.resolved.policy_kinds import knows_run_times
from wattkeeper.scenarios.analysis.resolved.workload import section_of
from wattkeeper.scenarios.spec.case_names import base_of
from wattkeeper.scenarios.spec.sections.gpu import StatedGpu, find_model
from wattkeeper.scenarios.spec.wording import merge_names

WHOLE = ("gpu", "gpus", "nodes", "sleep", "losses")
"""Keys of a cluster that are described together."""


def clusters_by_variant(scenario: Json) -> dict[str, Json]:
    """The whole cluster of each variant of a resolved scenario."""
    variants = scenario["variants"].items()
    return {name: variant.get("cluster") or scenario["cluster"] for name, variant in variants}


def describe_overrides(scenario: Json) -> Iterator[str]:
    """A line for each variant that overrides keys of the cluster or of the workload."""
    yield from merge_names((name, f"{text}.") for name, text in variant_overrides(scenario).items())


def variant_overrides(scenario: Json) -> dict[str, str]:
    """What variants override of limits, the cluster and the workload, in words, by variant."""
    texts = {}
    for name, cluster in clusters_by_variant(scenario).items():
        if base_of(name) in scenario["variants"]:
            continue
        size = scenario["variants"][name].get("workload") or {}
        parts = [*_describe_policies(scenario, name), *describe_limits(scenario, name)]
        parts += _describe_cluster_changes(scenario["cluster"], cluster)
        parts += [describe_setting(f"workload.{key}", value) for key, value in size.items()]
        if parts:
            texts[name] = ", ".join(parts)
    return texts


def _describe_policies(scenario: Json, variant: str) -> Iterator[str]:
    """What the policies that a variant names do: schedulers in plain words, others shortly."""
    policies = scenario["variants"][variant].get("policies") or {}
    for point in ("configure", "select", "replan"):
        chosen = policies.get(point)
        part = find_part(point, chosen["kind"]) if isinstance(chosen, dict) else None
        if part is not None and point == "select" and (words := getattr(part, "plain", "")):
            foresight = ", run times known in advance" * knows_run_times(scenario, variant)
            yield f"{words}{foresight}"
        elif part is not None and point != "select" and part.__doc__:
            first = part.__doc__.partition("\n")[0].removesuffix(".")
            yield first[:1].lower() + first[1:]


def describe_limits(scenario: Json, variant: str) -> Iterator[str]:
    """The power limit that a variant sets on jobs of a trace, by GPU type; W."""
    tune = (scenario["variants"][variant].get("policies") or {}).get("tune") or {}
    if not section_of(scenario).is_log or "profiles" in scenario["workload"]:
        return
    if tune.get("kind") == "fixed-power":
        yield f"power limit {tune['power_limit_w']:g} W"
    if tune.get("kind") != "power-fraction":
        return
    limits = []
    for gpu_type, stated in _stated_models(clusters_by_variant(scenario)[variant]):
        facts = StatedGpu.model_validate(stated) if isinstance(stated, dict) else stated
        model = find_model(facts, gpu_type)
        if model is None:
            yield f"power limit {100 * tune['fraction']:g} % of the highest"
            return
        limit_w = model.limits_w[count_up_to(tune["fraction"], model.limits_w) - 1]
        limits.append(f"{limit_w:g} W on {gpu_type}")
    yield f"power limit {', '.join(limits)}"


def _stated_models(cluster: Json) -> Iterator[tuple[str, Any]]:
    """The GPU types of a cluster, each with the type or the facts that it states for it."""
    if "power" not in cluster:
        yield cluster["gpu"], cluster.get("gpu_model")
    for name, power in cluster.get("power", {}).items():
        yield name, power.get("model")


def _describe_cluster_changes(usual: Json, own: Json) -> Iterator[str]:
    """What a cluster has otherwise; nodes, sleep and losses are described as a whole."""
    if describe_gpus(own) != describe_gpus(usual):
        yield describe_gpus(own)
    if own.get("sleep") != usual.get("sleep"):
        yield _describe_sleep(own.get("sleep"))
    cap = own.get("power_cap_w")
    if cap != usual.get("power_cap_w") and isinstance(cap, dict):
        does = "jobs pause" if cap.get("obey") == "preempt" else "limits fall"
        yield f"{does} to keep the power cap of the signal {cap['signal']}"
    if own.get("losses") != usual.get("losses"):
        yield from _describe_losses(usual.get("losses"), own.get("losses"))
    yield from _describe_keys(_simple_keys(usual), _simple_keys(own))


def _describe_keys(usual: Json, own: Json) -> Iterator[str]:
    """Each key of a cluster that differs."""
    for row in list_differences({"usual": usual, "own": own}):
        words, _ = key_words(f"cluster.{row['path']}")
        absent = row["own"] is None
        yield f"no {words}" if absent else describe_setting(f"cluster.{row['path']}", row["own"])


def _simple_keys(cluster: Json) -> Json:
    return {
        key: value
        for key, value in cluster.items()
        if key not in WHOLE and not (key == "power_cap_w" and isinstance(value, dict))
    }


def _describe_losses(usual: Json | None, own: Json | None) -> Iterator[str]:
    """What a cluster's losses of nodes are otherwise; checkpoints that it lacks as a whole."""
    if usual is None or own is None:
        yield "no node is lost" if own is None else "nodes are lost"
        return
    if own.get("checkpoint") is None and usual.get("checkpoint") is not None:
        yield "no checkpoints"
        own = own | {"checkpoint": usual["checkpoint"]}
    yield from _describe_keys({"losses": usual}, {"losses": own})


def _describe_sleep(sleep: Json | None) -> str:
    if sleep is None:
        return "nodes never sleep"
    after, power, wake = (f"{sleep[key]:,g}" for key in ("after_s", "power_w", "wake_s"))
    return f"nodes sleep after {after} s idle, at {power} W a GPU, and wake in {wake} s"


def describe_gpus(cluster: Json) -> str:
    """The GPUs of a cluster, as `512 × A100`."""
    if isinstance(cluster.get("nodes"), list):
        return ", ".join(
            f"{int(node['count']) * int(node['gpus'])} × {node['gpu']}" for node in cluster["nodes"]
        )
    if "gpus" in cluster:
        return f"{cluster['gpus']} × {cluster.get('gpu', 'GPU')}"
    return f"the cluster of trace {cluster.get('nodes')}"
