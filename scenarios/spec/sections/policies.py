"""The section of scenario files on policies."""

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from wattkeeper.policies.parts import parts
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.spec.sections.section import Section


class OneOf:
    """Marks a field that holds a part of a group: its name, or a mapping with `kind`.

    Args:
        group: A decision point, or `FORECASTS`.
    """

    def __init__(self, group: str) -> None:
        self.group = group

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A union of all configs of the group, discriminated by `kind`."""
        choices = {kind: handler(config) for kind, config in parts(self.group).items()}
        union = core_schema.tagged_union_schema(choices, discriminator="kind")
        spelt_out = core_schema.no_info_before_validator_function(_spell_out, union)
        return core_schema.nullable_schema(spelt_out)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Either the name or the mapping."""
        names = {"type": "string", "enum": list(parts(self.group))}
        return {"anyOf": [names, handler(schema)]}


def _spell_out(value: object) -> object:
    """The mapping that a name stands for, with tuples for lists, as strict mode requires."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, dict):
        return {key: _frozen(inside) for key, inside in value.items()}
    return value


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class Policies(Section):
    """The policy of each decision point."""

    configure: Annotated[PolicyConfig | None, OneOf("configure")] = None
    tune: Annotated[PolicyConfig | None, OneOf("tune")] = None
    select: Annotated[PolicyConfig | None, OneOf("select")] = None
    place: Annotated[PolicyConfig | None, OneOf("place")] = None
    retain: Annotated[PolicyConfig | None, OneOf("retain")] = None
