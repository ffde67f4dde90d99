"""What a variant does otherwise than its baseline, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import POINTS, Point
from wattkeeper.scenarios.analysis.resolved.policy_kinds import policy_configs, policy_kind
from wattkeeper.scenarios.document.blocks import Name, Text
from wattkeeper.scenarios.document.words import name_of


def describe_action(scenario: Json, variant: str, names: list[str]) -> Text:
    """What a variant does, as the subject of a sentence that ends in its name.

    Its name alone where it changes several things, or one that has no plain words.
    """
    name = name_of(variant, names)
    phrases = list(_phrases(scenario, variant))
    if len(phrases) != 1 or not phrases[0]:
        return (name,)
    phrase = phrases[0][:1].upper() + phrases[0][1:]
    if phrase.lower() == variant.lower():
        return (Name(phrase, name.number),)
    return f"{phrase} (", name, ")"


def _phrases(scenario: Json, variant: str) -> Iterator[str]:
    """A phrase for each thing that a variant changes; empty for those without plain words."""
    own = scenario["variants"][variant]
    baseline = own.get("baseline") or scenario["baseline"]
    for key in ("workload", "objective", "electricity", "zoo", "occupancy"):
        if own.get(key) != scenario["variants"][baseline].get(key):
            yield ""
    if _cluster(scenario, variant) != _cluster(scenario, baseline):
        yield _describe_cluster(_cluster(scenario, baseline), _cluster(scenario, variant))
    changed = [
        point
        for point in POINTS
        if policy_configs(scenario, variant, point) != policy_configs(scenario, baseline, point)
    ]
    if "configure" in changed and "tune" in changed:
        changed.remove("tune")  # a bandit of batch sizes brings its own limits
    for point in changed:
        yield _describe_policy(scenario, variant, point)


def _cluster(scenario: Json, variant: str) -> Json:
    cluster: Json = scenario["variants"][variant].get("cluster") or scenario["cluster"]
    return cluster


def _describe_cluster(usual: Json, own: Json) -> str:
    if (
        usual | {"sleep": None} == own | {"sleep": None}
        and own.get("sleep")
        and not usual.get("sleep")
    ):
        return "Letting idle nodes sleep"
    return ""


def _describe_policy(scenario: Json, variant: str, point: Point) -> str:
    configs = policy_configs(scenario, variant, point)
    if len(configs) != 1:
        return ""
    stated, kind = configs[0], configs[0]["kind"]
    match kind:
        case "power-fraction":
            return f"A power limit of {100 * stated['fraction']:g} % of the highest"
        case "fixed-power":
            return f"A power limit of {stated['power_limit_w']:g} W"
    words = plain_name(point, kind)
    return f"Scheduling {words}" if words and point == "select" else words


def plain_name(point: Point, kind: str) -> str:
    """What a policy does in plain words; empty where it has none."""
    part = find_part(point, kind)
    return "" if part is None else str(getattr(part, "plain", ""))


def scheduler_words(scenario: Json, variant: str) -> str:
    """The scheduler of a variant in plain words; empty where it has none."""
    kind = policy_kind(scenario, variant, "select") or "fifo"
    return plain_name("select", kind)
