"""A YAML file as plain data that knows where each value stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from wattkeeper.policies.errors import Problem, ScenarioError

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 32
LONG = 60

Path_ = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML's own scalars, with the numbers of YAML 1.2 (`1e-3` is one)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"),
    list("-+.0123456789"),
)


class Document:
    """Data of a scenario file, and the place of every value in it.

    Attributes:
        name: How messages call the file.
        data: The plain values.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._places: dict[Path_, str] = {}
        self._values = 0
        _check_depth(text, name)
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            self.data: Any = {} if node is None else self._convert(loader, node, ())
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(error, name) from None
        except yaml.YAMLError as error:
            raise ScenarioError(Problem(f"not YAML: {error}", name)) from None
        if not isinstance(self.data, dict):
            raise ScenarioError(
                Problem(f"found {describe(self.data)}; a scenario is a mapping", f"{name}:1:1")
            )

    def _convert(self, loader: _Loader, node: Node, path: Path_) -> Any:
        self._places[path] = self._at(node)
        self._values += 1
        if self._values > MAX_VALUES:
            raise ScenarioError(
                Problem(f"more than {MAX_VALUES} values, aliases counted", self._at(node))
            )
        if isinstance(node, MappingNode):
            return self._convert_mapping(loader, node, path)
        if isinstance(node, SequenceNode):
            return [self._convert(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        if node.tag.startswith("tag:yaml.org,2002:") and not node.tag.endswith(":timestamp"):
            try:
                return loader.construct_object(node)
            except (ValueError, OverflowError, yaml.YAMLError):
                problem = f"cannot read {node.value!r} as {node.tag.rpartition(':')[2]}"
                raise ScenarioError(Problem(problem, self._at(node))) from None
        return node.value

    def _convert_mapping(self, loader: _Loader, node: MappingNode, path: Path_) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = self._at(key_node)
            if not isinstance(key_node, ScalarNode):
                raise ScenarioError(Problem("a key must be a plain word", where))
            key = key_node.value
            if key in mapping:
                raise ScenarioError(Problem(f"the key {key!r} stands here twice", where))
            mapping[key] = self._convert(loader, value_node, (*path, key))
        return mapping

    def _at(self, node: Node) -> str:
        return _place(self.name, node.start_mark)

    def where(self, path: Path_) -> str:
        """The place of a value; of the nearest one around it if it is absent."""
        return self._places[self.known(path)]

    def known(self, path: Path_) -> Path_:
        """The path without steps that are not in the file, as the name of a chosen kind."""
        known: Path_ = ()
        for step in path:
            if (*known, step) in self._places:
                known = (*known, step)
        return known

    def override(self, setting: str) -> None:
        """Change a value: `path.to.key=value`, the value in YAML.

        A word that stands for a policy becomes the policy's mapping when one of its keys is set.

        Raises:
            ScenarioError: If the setting is not of that form, or leads through a plain value.
        """
        where = f"--set {setting}"
        path, equals, text = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise ScenarioError(Problem("write it as path.to.key=value", where))
        *parents, last = path.split(".")
        value = Document(f"value:\n  {text}", where).data["value"]
        inner: Any = self.data
        done: Path_ = ()
        for step in parents:
            inner, done = self._step_into(inner, step, where), (*done, _key(inner, step))
        if isinstance(inner, list) and not 0 <= _index(last) < len(inner):
            raise ScenarioError(Problem(f"no element {last} in a list of {len(inner)}", where))
        inner[_key(inner, last)] = value
        self._forget((*done, _key(inner, last)), where)

    def _step_into(self, inner: Any, step: str, where: str) -> Any:
        key = _key(inner, step)
        if isinstance(inner, list):
            if not 0 <= _index(step) < len(inner):
                raise ScenarioError(Problem(f"no element {step} in a list of {len(inner)}", where))
        elif inner.get(key) is None:
            inner[key] = {}
        if isinstance(inner[key], str):
            inner[key] = {"kind": inner[key]}
        if not isinstance(inner[key], dict | list):
            found = describe(inner[key])
            raise ScenarioError(Problem(f"{step!r} is {found}, it has no keys", where))
        return inner[key]

    def _forget(self, path: Path_, where: str) -> None:
        self._places = {
            known: place for known, place in self._places.items() if known[: len(path)] != path
        }
        for length in range(1, len(path) + 1):
            self._places.setdefault(path[:length], where)


def read(path: Path) -> Document:
    """Read a scenario file.

    Raises:
        ScenarioError: If it cannot be read or is not YAML; the message names line and column.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ScenarioError(Problem(f"{size} bytes; at most {MAX_BYTES} are read", str(path)))
        return Document(path.read_text(encoding="utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise ScenarioError(Problem(f"not UTF-8 at byte {error.start}", str(path))) from None
    except OSError as error:
        raise ScenarioError(Problem(f"cannot be read: {error.strerror}", str(path))) from None


def _check_depth(text: str, name: str) -> None:
    """Refuse deep nesting before anything recurses into it."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    where = _place(name, event.start_mark)
                    raise ScenarioError(Problem(f"nested more than {MAX_DEPTH} deep", where))
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, name) from None
    except yaml.YAMLError as error:
        raise ScenarioError(Problem(f"not YAML: {error}", name)) from None


def _syntax_error(error: yaml.MarkedYAMLError, name: str) -> ScenarioError:
    where = _place(name, error.problem_mark or error.context_mark)
    return ScenarioError(Problem(f"not YAML: {error.problem or error.context}", where))


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name


def describe(value: object) -> str:
    """A value in words, short."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    shown = f"the text {value!r}" if isinstance(value, str) else repr(value)
    return shown if len(shown) <= LONG else f"{shown[:LONG]}..."


def _index(step: str) -> int:
    return int(step) if step.isdecimal() else -1


def _key(inner: Any, step: str) -> str | int:
    return _index(step) if isinstance(inner, list) else step
