"""From a name or path to a checked scenario."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wattkeeper.policies.errors import InputError, Problem, ScenarioError
from wattkeeper.policies.registry import policies
from wattkeeper.scenarios.document import Document, read
from wattkeeper.scenarios.schema import OneOf, Scenario

SUFFIX = ".yaml"


class Loaded(NamedTuple):
    """A scenario, and the file that its messages refer to."""

    scenario: Scenario
    document: Document


def shipped() -> dict[str, Path]:
    """The scenario files that come with wattkeeper, by name."""
    folder = Path(str(files("wattkeeper.scenarios")))
    return {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def find(name_or_path: str) -> Path:
    """The file of a scenario.

    Raises:
        InputError: If there is neither a shipped scenario nor a file of that name.
    """
    known = shipped()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    if path.is_dir():
        raise InputError(f"{name_or_path} is a directory; name a scenario file")
    if not path.exists():
        raise InputError(
            f"no scenario {name_or_path!r}: neither a file nor one of the shipped ones, "
            f"{', '.join(known)}"
        )
    return path


def load(name_or_path: str, settings: Sequence[str] = ()) -> Loaded:
    """Read and check a scenario.

    Args:
        name_or_path: A shipped scenario's name, or a file.
        settings: Overrides, `path.to.key=value` each.

    Raises:
        ScenarioError: If anything is wrong; all problems at once, each with file, line and column.
        InputError: If there is no such scenario.
    """
    document = read(find(name_or_path))
    for setting in settings:
        document.override(setting)
    try:
        text = json.dumps(document.data)
    except ValueError as error:
        raise ScenarioError(Problem(str(error), document.name)) from None
    try:
        scenario = Scenario.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ScenarioError(_problems(error, document)) from None
    return Loaded(scenario, document)


def _problems(error: ValidationError, document: Document) -> list[Problem]:
    """One problem for each place; of a union, what its first fitting member says."""
    problems: dict[str, Problem] = {}
    for detail in error.errors():
        problem = Problem(_explain(detail), document.where(detail["loc"]))
        problems.setdefault(f"{problem.where} {problem.message}", problem)
    return sorted(problems.values(), key=_line_and_column)


def _line_and_column(problem: Problem) -> tuple[int, int]:
    found = re.search(r":(\d+):(\d+)$", problem.where)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _explain(detail: ErrorDetails) -> str:
    """What was found and what is allowed, in one line."""
    loc, kind, ctx = detail["loc"], detail["type"], detail.get("ctx", {})
    key = str(loc[-1]) if loc else ""
    if kind == "extra_forbidden":
        return _unknown_key(key, _allowed_keys(loc[:-1]))
    if kind == "missing":
        return f"the key {key!r} is missing"
    if kind == "union_tag_invalid":
        return f"{key}: found {ctx['tag']!r}; allowed: {ctx['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{key}: a mapping needs the key 'kind'"
    found = detail["input"]
    shown = "a mapping" if isinstance(found, dict) else f"{found!r}"
    message = detail["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:].removeprefix("nput")
    if kind == "value_error":
        return message
    return (
        f"{_named(loc)}: found {shown}; i{message}"
        if message.startswith(" ")
        else (f"{_named(loc)}: found {shown}; {message}")
    )


def _named(loc: tuple[int | str, ...]) -> str:
    words = [str(step) for step in loc if isinstance(step, str) and step.isidentifier()]
    return words[-1] if words else "scenario"


def _unknown_key(key: str, allowed: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, allowed, 1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown key {key!r}{hint}; allowed here: {', '.join(allowed)}"


def _allowed_keys(loc: Sequence[int | str]) -> list[str]:
    """The keys of the model at a place in the scenario."""
    models: list[type[BaseModel]] = [Scenario]
    for step in loc:
        models = [inner for model in models for inner in _step(model, step)] or models
    return sorted({key for model in models for key in model.model_fields})


def _step(model: type[BaseModel], step: int | str) -> list[type[BaseModel]]:
    if step == model.__name__ or step in _kinds(model):
        return [model]
    field = model.model_fields.get(str(step))
    if field is None:
        return []
    for mark in field.metadata:
        if isinstance(mark, OneOf):
            return list(policies(mark.point).values())
    return _models_in(field.annotation)


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    kind = model.model_fields.get("kind")
    return get_args(kind.annotation) if kind else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
