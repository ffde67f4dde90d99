"""Some variants of the shipped scenario `bandit-league`, for benchmarks that need no others."""

from __future__ import annotations

import json

from wattkeeper import scenarios


def choose_variants(*names: str) -> str:
    """The setting of a scenario that leaves only these variants of the league in it."""
    written = scenarios.load("bandit-league").document.data["variants"]
    return "variants=" + json.dumps({name: written[name] for name in names})
