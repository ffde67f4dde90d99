"""The JSON schema of a row of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from wattkeeper.policies.json_types import Json
from wattkeeper.traces.formats.profiles.rows import CHOICES, ROWS
from wattkeeper.traces.schema import LARGEST, is_optional
from wattkeeper.traces.trace import BOUNDARIES

RULES: Final[Mapping[str, Json]] = {
    "not empty": {"minLength": 1},
    "finite": {"minimum": -LARGEST, "maximum": LARGEST},
    "> 0": {"exclusiveMinimum": 0, "maximum": LARGEST},
}
RULES_BETWEEN_COLUMNS: Final = (
    {"not": {"required": ["energy_j", "power_w"]}},
    {
        "if": {"anyOf": [{"required": ["energy_j"]}, {"required": ["power_w"]}]},
        "then": {"required": ["energy_of"]},
        "else": {"not": {"required": ["energy_of"]}},
    },
    {
        "if": {"properties": {"energy_of": {"enum": ["node", "facility"]}}}
        | {"required": ["energy_of"]},
        "then": {"required": ["nodes"]},
    },
    {
        "if": {"properties": {"per": {"const": "step"}}},
        "then": {"required": ["steps_per_epoch"]},
        "else": {"not": {"required": ["steps_per_epoch"]}},
    },
    {"if": {"properties": {"per": {"const": "run"}}}, "then": {"required": ["epochs"]}},
    {"not": {"required": ["clock_mhz", "power_limit_w"]}},
)
"""What a row may not state together, and must."""


def row_schema() -> dict[str, Any]:
    """The JSON schema of a row; an empty cell of a CSV file is an absent key."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Measurement",
        "description": "A row of a table for `wattkeeper traces import profiles`.",
        "type": "object",
        "properties": {want.name: _describe(want) for want in ROWS},
        "required": [want.name for want in ROWS if not is_optional(want)],
        "additionalProperties": False,
        "dependentRequired": {"epochs": ["reached"], "reached": ["epochs"], "seed": ["epochs"]},
        "allOf": list(RULES_BETWEEN_COLUMNS),
    }


def _describe(want: pa.Field) -> Json:
    unit, doc = (want.metadata[key].decode() for key in (b"unit", b"doc"))
    described: Json = {"description": f"{doc} ({unit})" if unit else doc}
    if want.name in CHOICES:
        return described | {"enum": list(CHOICES[want.name])}
    if want.name == "energy_of":
        return described | {"enum": list(BOUNDARIES)}
    kinds = {pa.string(): "string", pa.float64(): "number", pa.int32(): "integer"}
    return described | {"type": kinds[want.type]} | RULES[want.metadata[b"rule"].decode()]
