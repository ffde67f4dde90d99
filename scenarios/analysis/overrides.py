"""What variants override of the scenario's cluster and workload, for pages and the terminal."""

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.differences import list_differences
from wattkeeper.scenarios.spec.cases import base_of
from wattkeeper.scenarios.spec.wording import axis_text


def clusters_by_variant(scenario: Json) -> dict[str, Json]:
    """The whole cluster of each variant of a resolved scenario."""
    variants = scenario["variants"].items()
    return {name: variant.get("cluster") or scenario["cluster"] for name, variant in variants}


def describe_overrides(scenario: Json) -> Iterator[str]:
    """A line for each variant that overrides keys of the cluster or of the workload."""
    for name, cluster in clusters_by_variant(scenario).items():
        if base_of(name) in scenario["variants"]:
            continue
        sides = {"scenario": scenario["cluster"], "variant": cluster}
        own = {f"cluster.{row['path']}": row["variant"] for row in list_differences(sides)}
        size = scenario["variants"][name].get("workload") or {}
        own |= {f"workload.{key}": value for key, value in size.items()}
        parts = [
            f"without {key}" if value is None else f"{key} {_format(value)}"
            for key, value in own.items()
        ]
        if parts:
            yield f"{name}: {', '.join(parts)}."


def _format(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else axis_text(value)
