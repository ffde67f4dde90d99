"""The JSON schema of scenario files."""

import json
from collections.abc import Mapping
from typing import Any, Final

from wattkeeper.scenarios.spec.schema import Scenario

UNNEEDED: Final = ("required", "minProperties", "default")
"""Words of a JSON schema that do not hold for overrides."""


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    definitions = schema["$defs"]
    for part in definitions.values():
        if "const" in part.get("properties", {}).get("kind", {}):
            part["required"] = sorted({"kind", *part.get("required", ())})
    own = definitions["Variant"]["properties"]
    own["cluster"] = _describe_overrides(own["cluster"], definitions) | {"default": None}
    plain: dict[str, Any] = json.loads(json.dumps(schema))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | plain


def _describe_overrides(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """The JSON schema of overrides, given that of a whole: no key is needed, each may be null."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | {
            key: value for key, value in schema.items() if key != "$ref"
        }
    partial = {key: value for key, value in schema.items() if key not in UNNEEDED}
    if "anyOf" in schema or "oneOf" in schema:
        choices = partial.pop("oneOf", None) or partial.pop("anyOf")
        partial["anyOf"] = [_describe_overrides(choice, definitions) for choice in choices]
    if "properties" in schema:
        partial["properties"] = {
            key: _allow_null(inner, definitions) for key, inner in schema["properties"].items()
        }
    if isinstance(schema.get("additionalProperties"), dict):
        partial["additionalProperties"] = _allow_null(schema["additionalProperties"], definitions)
    return partial


def _allow_null(schema: Any, definitions: Mapping[str, Any]) -> Any:
    choices = [_describe_overrides(schema, definitions), {"type": "null"}]
    return {"anyOf": choices} | {key: schema[key] for key in ("description",) if key in schema}
