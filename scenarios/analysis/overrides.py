"""What variants override of the scenario's cluster and workload, for pages and the terminal."""

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.differences import list_differences
from wattkeeper.scenarios.analysis.key_words import describe_setting, key_words
from wattkeeper.scenarios.spec.case_names import base_of

WHOLE = ("gpu", "gpus", "nodes", "sleep")
"""Keys of a cluster that are described together."""


def clusters_by_variant(scenario: Json) -> dict[str, Json]:
    """The whole cluster of each variant of a resolved scenario."""
    variants = scenario["variants"].items()
    return {name: variant.get("cluster") or scenario["cluster"] for name, variant in variants}


def describe_overrides(scenario: Json) -> Iterator[str]:
    """A line for each variant that overrides keys of the cluster or of the workload."""
    yield from (f"{name}: {text}." for name, text in variant_overrides(scenario).items())


def variant_overrides(scenario: Json) -> dict[str, str]:
    """What variants override of the cluster and the workload, in words, by variant."""
    texts = {}
    for name, cluster in clusters_by_variant(scenario).items():
        if base_of(name) in scenario["variants"]:
            continue
        size = scenario["variants"][name].get("workload") or {}
        parts = list(_describe_cluster_changes(scenario["cluster"], cluster))
        parts += [describe_setting(f"workload.{key}", value) for key, value in size.items()]
        if parts:
            texts[name] = ", ".join(parts)
    return texts


def _describe_cluster_changes(usual: Json, own: Json) -> Iterator[str]:
    """What a cluster has otherwise; nodes and sleep are described as a whole."""
    if describe_gpus(own) != describe_gpus(usual):
        yield describe_gpus(own)
    if own.get("sleep") != usual.get("sleep"):
        yield _describe_sleep(own.get("sleep"))
    rows = list_differences({"usual": _simple_keys(usual), "own": _simple_keys(own)})
    for row in rows:
        words, _ = key_words(f"cluster.{row['path']}")
        absent = row["own"] is None
        yield f"no {words}" if absent else describe_setting(f"cluster.{row['path']}", row["own"])


def _simple_keys(cluster: Json) -> Json:
    return {key: value for key, value in cluster.items() if key not in WHOLE}


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
