"""Loads a scenario by name or path, and checks it."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wattkeeper.policies.errors import (
    InputError,
    PolicyError,
    Problem,
    ScenarioError,
    WattkeeperError,
)
from wattkeeper.policies.parts import parts
from wattkeeper.policies.registry import POINTS
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.spec.case_names import name_as_written
from wattkeeper.scenarios.spec.cases import add_cases
from wattkeeper.scenarios.spec.overrides import merge_clusters, overriding_variants
from wattkeeper.scenarios.spec.policy_files import PolicyFile, register_policy_files
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.policies import OneOf, Policies
from wattkeeper.scenarios.spec.sections.signals import SignalSection
from wattkeeper.scenarios.spec.sections.variant import Variant
from wattkeeper.scenarios.spec.sweep_files import read_sweep_files
from wattkeeper.scenarios.spec.variants import RunSpec, VariantSpec, resolve_variants
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, describe, read, read_text

M = TypeVar("M", bound=BaseModel)

SUFFIX = ".yaml"
MOST_ERRORS = 500
"""Faults of a scenario that are explained; each takes a look at all others."""
WORDS = {
    "an object": "a mapping",
    "a valid dictionary": "a mapping",
    "a valid array": "a list",
    "a valid tuple": "a list",
    "a valid string": "text",
}
"""Terms of JSON in messages, and those of YAML."""
OWN_POLICY = "; one of your own needs its file: policy_files: [FILE.py], or --policy FILE.py"


class _Loaded(NamedTuple):
    scenario: Scenario
    document: YamlDocument


class LoadedScenario(_Loaded):
    """A checked scenario, and the document that messages about it refer to."""

    @cached_property
    def variants(self) -> Mapping[str, VariantSpec]:
        """The variants as all their runs have them, by name."""
        return resolve_variants(self.scenario)

    @property
    def runs(self) -> list[RunSpec]:
        """The runs: each variant with each seed."""
        seeds = self.scenario.all_seeds
        return [RunSpec(variant, seed) for variant in self.variants.values() for seed in seeds]


def locate_error(
    loaded: LoadedScenario, variant: str, error: InputError | PolicyError
) -> WattkeeperError:
    """The same error with the variant, and the place of the policy that it is about."""
    scenario, document = loaded
    point = error.point if isinstance(error, PolicyError) else None
    path: tuple[str, ...] = ("variants", variant)
    if point is not None:
        own = getattr(scenario.variants[variant].policies, point) is not None
        path = (*path, "policies", point) if own else ("policies", point)
    where = document.where_inside(path)
    problems = [
        Problem(f"variant {variant!r}: {f'{p.where}: ' * bool(p.where)}{p.message}", where)
        for p in error.problems
    ]
    located = type(error)(problems)
    for note in getattr(error, "__notes__", ()):
        located.add_note(note)
    return located


def nodes_path(document: YamlDocument, variant: str) -> tuple[str, ...]:
    """The place of the nodes of a variant's cluster, in the document as it was written."""
    written = document.data["variants"]
    name = name_as_written(variant, written)
    own = (written.get(name) or {}).get("cluster") or {}
    return (
        ("cluster", "nodes") if own.get("nodes") is None else ("variants", name, "cluster", "nodes")
    )


def shipped() -> dict[str, Path]:
    """The scenario files that come with wattkeeper, by name."""
    folder = Path(str(files("wattkeeper.scenarios")))
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def find_scenario(name_or_path: str) -> Path:
    """The file of a scenario.

    Raises:
        InputError: If neither a shipped scenario nor a file has that name.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    if not name_or_path:
        raise InputError("found no name of a scenario, but an empty text")
    path = Path(name_or_path)
    try:
        if path.is_dir():
            raise InputError(f"{name_or_path} is a directory; name a scenario file")
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        raise InputError(
            f"no scenario {name_or_path!r}{did_you_mean(name_or_path, known)}: neither a "
            f"file nor one of the shipped ones, {', '.join(known)}"
        )
    return path


def load(
    name_or_path: str,
    settings: Sequence[str] | Mapping[str, Any] = (),
    seeds: int | Sequence[int] | None = None,
    axes: Sequence[str] = (),
    policy_files: Sequence[str] = (),
) -> LoadedScenario:
    """Read and check a scenario.

    Args:
        name_or_path: A shipped scenario's name, or a file.
        settings: Overrides, `path.to.key=value` each, or values by path.
        seeds: Replace the scenario's: a number of seeds, from 1 on, or a list.
        axes: Replace the axes of its sweep: `path.to.key=value,value,...` each.
        policy_files: Files of policies that it can name besides those that it lists.

    Raises:
        ScenarioError: If anything is wrong; all problems at once, each with file, line and column.
        InputError: If there is no such scenario.
        PolicyError: If a file of policies cannot be used; the message names its line.
    """
    document = read(find_scenario(name_or_path))
    if isinstance(settings, Mapping):
        for path, value in settings.items():
            document.set_value(path, value, f"settings {path}")
    else:
        for setting in settings:
            document.override(setting)
    _check_removed(document)
    if seeds is not None:
        given = seeds if isinstance(seeds, int) else list(seeds)
        document.set_value("seeds", given, "--seeds")
    if axes:
        document.set_axes(axes)
    for name in policy_files:
        document.append("policy_files", name, f"--policy {name}")
    return check(document)


def _check_removed(document: YamlDocument) -> None:
    """Refuse a setting that removes the baseline and leaves other variants."""
    variants, baseline = document.data.get("variants"), document.data.get("baseline")
    where = document.changed.get(("variants", str(baseline)))
    if where is not None and isinstance(variants, dict) and variants and baseline not in variants:
        raise ScenarioError(
            f"variants: {baseline} is the baseline; name another one of the variants that are left "
            f"(--set baseline=NAME): {', '.join(variants)}",
            where,
        )


def check(document: YamlDocument) -> LoadedScenario:
    """Check a document against the schema.

    Raises:
        ScenarioError: If anything is wrong; all problems at once.
        PolicyError: If a file of policies cannot be used.
    """
    if document.policy_files is None:
        document.policy_files = _read_policy_files(document)
    use_policy_files(document.policy_files)
    read_sweep_files(document)
    scenario = validate(Scenario, document, merge_clusters(document.data))
    unused = [
        Problem(_explain_unused(setting), setting.where)
        for setting in _overridden_settings(document)
        if len(setting.variants) == len(scenario.variants)
    ]
    if unused:
        raise ScenarioError(unused)
    return LoadedScenario(add_cases(scenario), document)


class _OverriddenSetting(NamedTuple):
    """A changed value of the scenario that does not reach all variants.

    Attributes:
        path: Its dotted path.
        where: Its place in messages.
        variants: Those that override it.
    """

    path: str
    where: str
    variants: list[str]


def _overridden_settings(document: YamlDocument) -> list[_OverriddenSetting]:
    settings = [
        _OverriddenSetting(
            ".".join(map(str, path)), where, overriding_variants(document.data, path)
        )
        for path, where in document.changed.items()
    ]
    return [setting for setting in settings if setting.variants]


def _explain_unused(setting: _OverriddenSetting) -> str:
    option = setting.where.partition(" ")[0] if setting.where.startswith("--") else "as"
    return (
        f"{setting.path}: it would change nothing, since every variant overrides it: "
        f"{', '.join(setting.variants)}; set it there, {option} "
        f"variants.{setting.variants[0]}.{setting.path}=..."
    )


def describe_overridden(document: YamlDocument) -> list[str]:
    """A line for each setting from outside the file that some variants override."""
    return [
        f"{where}: no change in {', '.join(variants)}: overridden there "
        f"(variants.{variants[0]}.{path})"
        for path, where, variants in _overridden_settings(document)
        if not where.startswith(f"{document.name}:")
    ]


def _read_policy_files(document: YamlDocument) -> tuple[PolicyFile, ...]:
    """The files of policies that a document names, each once.

    Raises:
        ScenarioError: If some cannot be read.
    """
    files: dict[Path, PolicyFile] = {}
    problems: list[Problem] = []
    listed = document.data.get("policy_files")
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(name, str):
            continue  # the schema refuses it
        place = ("policy_files", index)
        path = document.folder_of(place) / name
        try:
            files.setdefault(path.resolve(), PolicyFile(name, str(path), read_text(path)))
        except ScenarioError as error:
            problems += [
                Problem(f"policy_files: {each}", document.where(place)) for each in error.problems
            ]
    if problems:
        raise ScenarioError(problems)
    return tuple(files.values())


_used: list[PolicyFile] = []
"""The files whose policies the schema knows."""


def use_policy_files(files: Sequence[PolicyFile]) -> None:
    """Let scenarios name the policies of these files, and of no others.

    Raises:
        WattkeeperError: If one of them cannot be used; the message names its line.
    """
    if _used == list(files):
        return
    _used.clear()
    register_policy_files(files)
    for schema in (SignalSection, Policies, Variant, Scenario):  # the inner ones first
        schema.model_rebuild(force=True)
    _used[:] = files


def validate(schema: type[M], document: YamlDocument, data: Any) -> M:
    """Check the data of a document against a schema.

    Raises:
        ScenarioError: If anything is wrong; all problems at once, each with its place.
    """
    try:
        return schema.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise ScenarioError(_problems(error, document, schema)) from None


def _problems(
    error: ValidationError, document: YamlDocument, schema: type[BaseModel]
) -> list[Problem]:
    """Each problem once, in the order of the file."""
    problems: dict[str, Problem] = {}
    details = _drop_inherited(error.errors()[:MOST_ERRORS])
    for detail in _drop_superseded(details, document):
        message, where = _explain(detail, document, schema), _place_of(detail, document)
        known = f"{where} {_key_of(detail, document) if _is_type_error(detail) else message}"
        if known in problems and _is_type_error(detail):
            message = f"{problems[known].message} or {message.partition('; should be ')[2]}"
        problems[known] = Problem(message, where)
    return sorted(problems.values(), key=line_and_column)


def _place_of(detail: ErrorDetails, document: YamlDocument) -> str:
    loc = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return document.where_key(document.known(loc))
    if detail["type"] == "elsewhere":
        return document.where((*loc, *detail["ctx"]["at"]))
    if detail["type"] == "union_tag_invalid":
        return document.where((*loc, "kind"))
    if detail["type"] in ("missing", "value_error", "both_forms", "too_short"):
        return document.where_inside(loc)
    return document.where(loc)


def _is_type_error(detail: ErrorDetails) -> bool:
    """Whether the value has another type, or is no word that is allowed in its place."""
    return detail["type"].endswith("_type") or detail["type"] == "literal_error"


def _key_of(detail: ErrorDetails, document: YamlDocument) -> str:
    known = document.known(detail["loc"])
    return next((step for step in reversed(known) if isinstance(step, str)), "")


def _drop_inherited(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out faults of variants' clusters that the scenario's cluster has, too."""
    faults = {(detail["loc"], detail["msg"]) for detail in details}
    return [
        detail
        for detail in details
        if detail["loc"][:1] != ("variants",) or (detail["loc"][2:], detail["msg"]) not in faults
    ]


def _drop_superseded(details: list[ErrorDetails], document: YamlDocument) -> list[ErrorDetails]:
    """Leave out type errors of a union where one of its types fits but for its content."""
    errors = [(document.known(detail["loc"]), _is_type_error(detail)) for detail in details]

    def superseded(detail: ErrorDetails) -> bool:
        path = document.known(detail["loc"])
        inside = [(other, type_error) for other, type_error in errors if other[: len(path)] == path]
        if detail["type"] == "too_short":
            return any(other != path for other, _ in inside)
        return _is_type_error(detail) and any(
            other != path or not type_error for other, type_error in inside
        )

    return [detail for detail in details if not superseded(detail)]


def line_and_column(problem: Problem) -> tuple[int, int]:
    """Line and column of a problem; (0, 0) if it has no place in a file."""
    place = re.search(r":(\d+):(\d+)$", problem.where)
    return (int(place[1]), int(place[2])) if place else (0, 0)


def _explain(detail: ErrorDetails, document: YamlDocument, schema: type[BaseModel]) -> str:
    """A line that says what was found and what is allowed."""
    loc, kind, ctx = detail["loc"], detail["type"], detail.get("ctx", {})
    key = str(loc[-1]) if loc else ""
    name = _key_of(detail, document)
    if kind == "extra_forbidden":
        allowed = _allowed_keys(schema, loc[:-1])
        hint = did_you_mean(key, allowed)
        return f"unknown key {key!r}{hint}; allowed here: {', '.join(allowed)}"
    if kind == "missing":
        return f"the key {key!r} is missing"
    if kind == "union_tag_invalid":
        close = did_you_mean(ctx["tag"], re.findall("'([^']+)'", ctx["expected_tags"]))
        hint = OWN_POLICY if any(step in POINTS for step in loc) else ""
        return f"{name}: found {ctx['tag']!r}{close}; allowed: {ctx['expected_tags']}{hint}"
    if kind == "union_tag_not_found":
        return f"{name}: a mapping needs the key {ctx['discriminator']}"
    if kind == "too_short":
        return f"{name}: found none; at least {ctx['min_length']} needed"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind in ("value_error", "elsewhere", "both_forms"):
        return f"{name}: {message}" if name and kind == "value_error" else message
    for json_term, yaml_term in WORDS.items():
        message = message.replace(json_term, yaml_term)
    return f"{name}: found {describe(detail['input'])}; {message}"


def _allowed_keys(schema: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The keys that are allowed at a place in a document."""
    models = [schema]
    for step in loc:
        models = [inner for model in models for inner in _step(model, step)] or models
    return sorted({key for model in models for key in model.model_fields})


def _step(model: type[BaseModel], step: int | str) -> list[type[BaseModel]]:
    kind = model.model_fields.get("kind")
    if step == model.__name__ or (kind and step in get_args(kind.annotation)):
        return [model]
    field = model.model_fields.get(str(step))
    if field is None:
        return []
    for mark in field.metadata:
        if isinstance(mark, OneOf):
            return list(parts(mark.group).values())
    return _models_in(field.annotation)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
