"""A policy as an option of an example."""

from __future__ import annotations

import json

from wattkeeper.policies.errors import InputError, Point
from wattkeeper.policies.registry import PolicyConfig, find_config


def parse_policy(point: Point, text: str, example: str) -> PolicyConfig:
    """The config of a policy, given as its name or as JSON with its `kind`.

    Args:
        point: Its decision point, which names the option.
        text: What was given.
        example: JSON that would be right.

    Raises:
        InputError: If it is neither, or there is no such policy.
    """
    if not text.startswith("{"):
        return find_config(point, text)
    try:
        settings = json.loads(text)
        return find_config(point, str(settings.pop("kind")), settings)
    except (ValueError, KeyError) as error:
        found = "it has no kind" if isinstance(error, KeyError) else f"no JSON: {error}"
        raise InputError(
            f"--{point} is {text!r}, {found}; allowed: a policy's name, or JSON as in {example}"
        ) from None
