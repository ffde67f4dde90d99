"""Which policies a resolved scenario chooses."""

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.registry import Point


def policy_kind(scenario: Json, variant: str, point: Point) -> str | None:
    """The kind of a variant's policy, its own or the scenario's; None if that is the default."""
    for section in (scenario["variants"][variant], scenario):
        chosen = (section.get("policies") or {}).get(point)
        if chosen:
            kind: str = chosen["kind"]
            return kind
    return None
