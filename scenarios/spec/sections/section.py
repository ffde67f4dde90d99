"""Base of the sections of scenario files."""

from pydantic import ConfigDict

from wattkeeper.policies.described import Described

LARGEST = 1e15
"""Largest number in a scenario: sums and products of seconds and watts stay finite."""


class Section(Described):
    """Base of all sections of a scenario: immutable, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
