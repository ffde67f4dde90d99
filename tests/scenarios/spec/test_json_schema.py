"""The JSON schema, read by a small validator of just the words that it uses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import yaml

from tests.conftest import Command
from tests.support.scenario_files import GOOD, Refuse, changed
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.spec.json_schema import json_schema
from wattkeeper.scenarios.spec.loading import shipped
from wattkeeper.scenarios.spec.variants import DEFAULTS

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str | datetime),  # YAML reads dates as such
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "number": lambda x: isinstance(x, int | float) and not isinstance(x, bool),
}


def is_date(x: Any) -> bool:
    """Whether a value is no text, or a date with its time."""
    try:
        return not isinstance(x, str) or bool(datetime.fromisoformat(x))
    except ValueError:
        return False


RULES: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda x, kind: TYPES[kind](x),
    "const": lambda x, value: bool(x == value),
    "enum": lambda x, values: x in values,
    "minimum": lambda x, least: not TYPES["number"](x) or x >= least,
    "maximum": lambda x, most: not TYPES["number"](x) or x <= most,
    "exclusiveMinimum": lambda x, least: not TYPES["number"](x) or x > least,
    "exclusiveMaximum": lambda x, most: not TYPES["number"](x) or x < most,
    "minLength": lambda x, least: not isinstance(x, str) or len(x) >= least,
    "maxLength": lambda x, most: not isinstance(x, str) or len(x) <= most,
    "maxItems": lambda x, most: not isinstance(x, list) or len(x) <= most,
    "pattern": lambda x, regex: not isinstance(x, str) or re.search(regex, x) is not None,
    "minItems": lambda x, least: not isinstance(x, list) or len(x) >= least,
    "uniqueItems": lambda x, _: not isinstance(x, list) or len({str(i) for i in x}) == len(x),
    "minProperties": lambda x, least: not isinstance(x, dict) or len(x) >= least,
    "format": lambda x, name: name == "date-time" and is_date(x),
    "required": lambda x, keys: not isinstance(x, dict) or set(keys) <= set(x),
}

REMARKS = {"$schema", "$defs", "title", "description", "default", "discriminator", "examples"}


def fits(value: Any, schema: Any, root: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    return all(_fits_word(value, word, rule, schema, root) for word, rule in schema.items())


def _fits_word(value: Any, word: str, rule: Any, schema: Any, root: Any) -> bool:
    if word in REMARKS:
        return True
    if word in RULES:
        return RULES[word](value, rule)
    if word == "$ref":
        return fits(value, root["$defs"][rule.removeprefix("#/$defs/")], root)
    if word in ("anyOf", "oneOf", "allOf"):
        count = sum(fits(value, choice, root) for choice in rule)
        return {"anyOf": count > 0, "oneOf": count == 1, "allOf": count == len(rule)}[word]
    if word == "items":
        return not isinstance(value, list) or all(fits(item, rule, root) for item in value)
    if word == "properties":
        return not isinstance(value, dict) or all(
            fits(value[key], inner, root) for key, inner in rule.items() if key in value
        )
    if word == "additionalProperties":
        known = schema.get("properties", {})
        return not isinstance(value, dict) or all(
            fits(inner, rule, root) for key, inner in value.items() if key not in known
        )
    raise AssertionError(f"the JSON schema uses the word {word!r}, which this test does not know")


@pytest.fixture(scope="module")
def root() -> dict[str, Any]:
    """The schema."""
    return json_schema()


def test_json_schema_fits_all_shipped_scenarios(inside: Command, root: dict[str, Any]) -> None:
    assert json.loads(inside("schema").stdout) == root
    assert root["$schema"].startswith("https://json-schema.org/")
    for name, file in shipped().items():
        assert fits(yaml.safe_load(file.read_text(encoding="utf-8")), root, root), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("objective: {eta", "objectiv: {eta"),
        ("beta: 2}", "betta: 2}"),
        ("  gpu: SYN-250W\n", ""),
        ("baseline: default\n", ""),
        ("gpus: 4", "gpus: four"),
        ("gpus: 4", 'gpus: "4"'),
        ("gpus: 4", "gpus: 0"),
        ("idle_power_w: 40", "idle_power_w: -40"),
        ("eta: 0.5", "eta: 2"),
        ("seeds: 2", "seeds: 0"),
        ("seeds: 2", "seeds: []"),
        ("tune: zeus-jit", "tune: zeus-jitt"),
        ("kind: zeus,", "kind: zeuss,"),
        ("kind: zeus, ", ""),
        ("kind: recurring", "kind: recurrin"),
        ("  kind: recurring\n", ""),
        ("name: mine", "name: a/b"),
        ("  default: {}", "  default:"),
        ("seeds: 2", "seeds: 2\noccupancy: recordd"),
        ("tune: zeus-jit", "tune: {kind: fixed-power}"),
    ],
)
def test_json_schema_refuses_what_the_command_refuses(
    refuse: Refuse, root: dict[str, Any], old: str, new: str
) -> None:
    assert fits(yaml.safe_load(GOOD), root, root)
    assert refuse(changed(old, new))
    assert not fits(yaml.safe_load(changed(old, new)), root, root)


def test_json_schema_documents_everything(root: dict[str, Any]) -> None:
    for name, model in {"Scenario": root, **root["$defs"]}.items():
        if "properties" not in model:
            continue
        assert model.get("description"), f"{name} is not described"
        assert model["additionalProperties"] is False, name
    for name in ("UniformCluster", "RecurringWorkload", "TraceWorkload", "Variant"):
        for key, inner in root["$defs"][name]["properties"].items():
            if key not in ("kind", "policies", "objective", "occupancy", "profiling"):
                assert inner.get("description"), f"{name}.{key} is not described"
    names = json.dumps(root)
    for point in DEFAULTS:
        for kind in policies(point):
            assert f'"{kind}"' in names
