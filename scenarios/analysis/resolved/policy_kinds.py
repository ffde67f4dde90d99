"""Which policies a resolved scenario chooses."""

from collections.abc import Iterator
from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import Point

RECORDED: Final = "recorded"
"""The scheduler that starts each job when it started, and its variant in a study."""


def policy_configs(scenario: Json, variant: str, point: Point) -> list[Json]:
    """A variant's policies of a decision point, its own or the scenario's; none: the default."""
    for section in (scenario["variants"][variant], scenario):
        if chosen := (section.get("policies") or {}).get(point):
            return list(chosen) if isinstance(chosen, list) else [chosen]
    return []


def policy_kinds(scenario: Json, variant: str, point: Point) -> list[str]:
    """The kinds of a variant's policies, its own or the scenario's; none if that is the default."""
    return [config["kind"] for config in policy_configs(scenario, variant, point)]


def policy_kind(scenario: Json, variant: str, point: Point) -> str | None:
    """The kind of the only policy of a decision point; None if that is the default."""
    return next(iter(policy_kinds(scenario, variant, point)), None)


def knows_run_times(scenario: Json, variant: str) -> bool:
    """Whether a variant's scheduler reads recorded run times, which no site knows in advance."""
    for config in policy_configs(scenario, variant, "select"):
        part = find_part("select", config["kind"])
        if part is not None and "duration_s" in part.model_validate(config).needed_columns:
            return True
    return False


def list_schedulers(scenario: Json) -> Iterator[str]:
    """The baseline, and variants that differ in their scheduler alone; no replay of the record."""
    for name, variant in scenario["variants"].items():
        policies = variant.get("policies") or {}
        others = {key for key in variant if key != "policies"} | (set(policies) - {"select"})
        is_replay = policy_kind(scenario, name, "select") == RECORDED
        if name == scenario["baseline"] or not (others or is_replay):
            yield name
