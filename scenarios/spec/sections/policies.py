"""The section of scenario files on policies."""

from functools import cache
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError, SchemaValidator, core_schema

from wattkeeper.policies.configure._chain import ChainConfig, chain_of
from wattkeeper.policies.parts import Part, find_part, parts
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.spec.sections.section import Section

LISTED: Final = ("configure",)
"""Decision points whose policies may follow each other."""


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
        """A config of the group; or a list of them.

        Only the schemas of configs that a scenario names are built: that of all takes longer than
        all else of the scenario.
        """
        one: CoreSchema = core_schema.with_info_plain_validator_function(
            self._validate, serialization=_SERIALIZATION
        )
        if self.group in LISTED:
            one = core_schema.tagged_union_schema(
                {"one": one, "list": _listed(one)}, discriminator=_form
            )
        return core_schema.nullable_schema(one)

    def _validate(self, value: object, info: ValidationInfo) -> Part:
        """Validate as a union of all configs of the group, discriminated by `kind`."""
        value = _spell_out(value)
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        part: type[Part] | None = None
        if kind is None:
            part = next(iter(parts(self.group).values()))  # what its union says of such a value
        elif isinstance(kind, str):
            part = find_part(self.group, kind)
        if part is None:
            tags = ", ".join(map(repr, parts(self.group)))
            ctx = {"discriminator": "'kind'", "tag": str(kind), "expected_tags": tags}
            raise PydanticKnownError("union_tag_invalid", ctx)
        valid: Part = _validator(part).validate_python(value, strict=info.mode == "json")
        return valid

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Either the name or the mapping; or a list of these."""
        known = parts(self.group)
        names = {"type": "string", "enum": list(known)}
        forms = [names, handler(_union(*known.values()))]
        if self.group in LISTED:
            forms = [*forms, {"type": "array", "items": {"anyOf": forms}}]
        return {"anyOf": [*forms, {"type": "null"}]}


@cache
def _validator(part: type[Part]) -> SchemaValidator:
    return SchemaValidator(_union(part))


def _union(*several: type[Part]) -> CoreSchema:
    choices = {part.model_fields["kind"].default: part for part in several}
    for part in several:
        part.model_rebuild()
    return core_schema.tagged_union_schema(
        {kind: part.__pydantic_core_schema__ for kind, part in choices.items()},
        discriminator="kind",
    )


def _serialize(config: Part, info: SerializationInfo) -> dict[str, Any]:
    """A part as its own class has it: that may be of a policy file which is not loaded."""
    return config.model_dump(mode=info.mode, exclude_none=info.exclude_none)


_SERIALIZATION = core_schema.plain_serializer_function_ser_schema(_serialize, info_arg=True)


def _listed(one: CoreSchema) -> CoreSchema:
    """A list of policies that follow each other."""
    return core_schema.no_info_after_validator_function(
        chain_of,
        core_schema.list_schema(one),
        serialization=core_schema.plain_serializer_function_ser_schema(
            lambda config, info: [_serialize(part, info) for part in config.parts], info_arg=True
        ),
    )


def _form(value: object) -> str:
    """The form of a value of a group in `LISTED`."""
    return "list" if isinstance(value, list | ChainConfig) else "one"


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
    """Or a list: a policy that chooses the parent, then one that chooses the batch size."""
    tune: Annotated[PolicyConfig | None, OneOf("tune")] = None
    select: Annotated[PolicyConfig | None, OneOf("select")] = None
    place: Annotated[PolicyConfig | None, OneOf("place")] = None
    replan: Annotated[PolicyConfig | None, OneOf("replan")] = None
    retain: Annotated[PolicyConfig | None, OneOf("retain")] = None
