"""Reads YAML as plain data, with the place of each value in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from wattkeeper.policies.errors import InputError, Problem, ScenarioError
from wattkeeper.scenarios.spec.policy_files import PolicyFile

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000
MAX_DEPTH = 32
LONG = 60
MAX_INT = 2**63 - 1

ValuePath = tuple[str | int, ...]


PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}

COLLECTION_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")


class _Loader(yaml.SafeLoader):
    """YAML 1.1, and `1e-3` is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"),
    list("-+.0123456789"),
)


class YamlDocument:
    """The data of a scenario file, and the place of every value.

    Attributes:
        name: Name of the file in messages.
        data: The plain values.
        folder: That of the file.
        policy_files: The files of policies that it names; None before they are read.
        changed: By path of a value that was changed, what messages call its place.
    """

    def __init__(self, text: str, name: str, folder: Path = Path()) -> None:
        self.name = name
        self.folder = folder
        self.policy_files: tuple[PolicyFile, ...] | None = None
        self._places: dict[ValuePath, str] = {(): f"{name}:1:1"}
        self._key_places: dict[ValuePath, str] = {}
        self._values = 0
        self._open: list[Node] = []
        self.changed: dict[ValuePath, str] = {}
        _check_depth(text, name)
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            self.data: Any = {} if node is None else self._convert(loader, node, ())
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(error, name) from None
        if not isinstance(self.data, dict):
            raise ScenarioError(
                f"found {describe(self.data)}; a scenario is a mapping", f"{name}:1:1"
            )

    def _convert(self, loader: _Loader, node: Node, path: ValuePath) -> Any:
        self._places[path] = self._at(node)
        self._values += 1
        if self._values > MAX_VALUES:
            raise ScenarioError(f"more than {MAX_VALUES} values, aliases counted", self._at(node))
        if isinstance(node, ScalarNode):
            return self._convert_scalar(loader, node, path)
        if any(node is outer for outer in self._open):
            raise self._wrong(node, path, "an alias of what it stands in")
        if node.tag not in COLLECTION_TAGS:
            raise self._wrong(node, path, f"the tag {node.tag} is not allowed")
        if len(self._open) >= MAX_DEPTH:
            raise self._wrong(node, path, f"nested more than {MAX_DEPTH} deep")
        self._open.append(node)
        if isinstance(node, MappingNode):
            value: Any = self._convert_mapping(loader, node, path)
        else:
            assert isinstance(node, SequenceNode)
            value = [self._convert(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        self._open.pop()
        return value

    def _convert_scalar(self, loader: _Loader, node: ScalarNode, path: ValuePath) -> Any:
        if node.tag.endswith(":timestamp"):
            return node.value
        if node.tag not in PLAIN_TAGS:
            raise self._wrong(node, path, f"the tag {node.tag} is not allowed")
        if ":" in node.value and node.tag.endswith((":int", ":float")):
            raise self._not_decimal(node, path)  # in base 60, which takes quadratic time
        try:
            value = loader.construct_object(node)
        except (ArithmeticError, LookupError, TypeError, ValueError, yaml.YAMLError):
            kind = node.tag.rpartition(":")[2]
            what = f"cannot read {describe(node.value)} as {kind}"
            raise self._wrong(node, path, what) from None
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self._wrong(node, path, "half of a surrogate pair is no text")
        if isinstance(value, bool | None | str):
            return value
        if isinstance(value, int) and not DECIMAL.fullmatch(node.value):
            raise self._not_decimal(node, path)
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise self._wrong(node, path, f"whole numbers go up to {MAX_INT}")
        return value

    def _not_decimal(self, node: ScalarNode, path: ValuePath) -> ScenarioError:
        what = f"found {node.value[:LONG]}; write numbers in decimal, text in quotes"
        return self._wrong(node, path, what)

    def _wrong(self, node: Node, path: ValuePath, what: str) -> ScenarioError:
        name = next((f"{step}: " for step in reversed(path) if isinstance(step, str)), "")
        return ScenarioError(name + what, self._at(node))

    def _convert_mapping(
        self, loader: _Loader, node: MappingNode, path: ValuePath
    ) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = self._at(key_node)
            if not isinstance(key_node, ScalarNode):
                raise ScenarioError("a key must be a plain word", where)
            key = key_node.value
            if key in mapping:
                raise ScenarioError(f"the key {key!r} stands here twice", where)
            self._key_places[(*path, key)] = where
            mapping[key] = self._convert(loader, value_node, (*path, key))
        return mapping

    def _at(self, node: Node) -> str:
        return _place(self.name, node.start_mark)

    def where(self, path: ValuePath) -> str:
        """The place of a value; if it is absent, that of the nearest value around it."""
        return self._places[self.known(path)]

    def where_inside(self, path: ValuePath) -> str:
        """The place of a value, or of an override inside it, if there is one."""
        known = self.known(path)
        inside = (where for other, where in self.changed.items() if other[: len(known)] == known)
        return next(inside, self.where(known))

    def where_key(self, path: ValuePath) -> str:
        """The place of a key, or of its value if that was overridden."""
        return self._key_places.get(path) or self.where(path)

    def known(self, path: ValuePath) -> ValuePath:
        """The path without steps that are not in the file, such as the name of a union's member.

        That name may be a key, too (`trace`): the longest path counts, and the one that ends last.
        """
        known: list[ValuePath] = [()]
        for step in path:
            known += [(*inner, step) for inner in known if (*inner, step) in self._places]
        return max(reversed(known), key=len)

    def folder_of(self, path: ValuePath) -> Path:
        """The folder that a relative path in a value is relative to.

        That of the file for values in it, the working directory for `--set`, `--sweep` and others
        from outside.
        """
        in_file = self.where(path).startswith(f"{self.name}:")
        return self.folder if in_file else Path()

    def override(self, setting: str) -> None:
        """Change a value: `path.to.key=value`, the value in YAML.

        A key may contain dots if it exists. The name of a policy becomes the policy's mapping when
        one of its keys is set. `variants.NAME=null` removes a variant.

        Raises:
            ScenarioError: If the setting is not of that form, or leads through a plain value.
        """
        where = f"--set {setting}"
        path, text = _split_setting(setting, where, "path.to.key=value")
        self.set_value(path, _parse_value(text, where), where)

    def set_axes(self, axes: Sequence[str]) -> None:
        """Set the sweep: `path.to.key=value,value,...` for each axis, the values in YAML.

        Raises:
            ScenarioError: If one is not of that form, or two have the same path.
        """
        self.put(("sweep",), {}, f"--sweep {axes[0]}")
        for axis in axes:
            where = f"--sweep {axis}"
            path, text = _split_setting(axis, where, "path.to.key=value,value,...")
            if path in self.data["sweep"]:
                raise ScenarioError(f"a second axis {path}; write one list", where)
            self.put(("sweep", path), _parse_value(f"[{text}]", where), where)

    def set_value(self, path: str, value: Any, where: str, where_key: str = "") -> None:
        """Change the value at a dotted path; messages then call its place `where`.

        A message about the key itself calls it `where_key`, if that is given. None removes a
        variant.

        Raises:
            ScenarioError: If the path leads through a plain value, or there is no such variant.
        """
        inner: Any = self.data
        done: ValuePath = ()
        rest = path.split(".")
        if len(rest) > MAX_DEPTH:
            raise ScenarioError(f"nested more than {MAX_DEPTH} deep", where)
        while True:
            key, rest = _next_key(inner, rest, where)
            done = (*done, key)
            if not rest:
                break
            inner = _step_into(inner, key, done, where)
        if value is None and done[:-1] == ("variants",):
            _find_variant(inner, key, where)
            del inner[key]
        else:
            inner[key] = value
        self._forget(done, where, where_key or where)

    def copy(self) -> YamlDocument:
        """A copy of the document, which can be changed on its own."""
        other = copy(self)
        other.data = deepcopy(self.data)
        for name in ("_places", "_key_places", "changed"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def put(self, path: ValuePath, value: Any, where: str) -> None:
        """Change the value at a path of steps; messages then call its place `where`."""
        inner = self.data
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        self._forget(path, where, where)

    def append(self, key: str, value: Any, where: str) -> None:
        """Add a value to the list under a key; messages then call its place `where`."""
        listed = self.data.setdefault(key, [])
        if isinstance(listed, list):
            listed.append(value)
            self._forget((key, len(listed) - 1), where, where)

    def _forget(self, path: ValuePath, where: str, where_key: str) -> None:
        for places in (self._places, self._key_places):
            for known in [known for known in places if known[: len(path)] == path]:
                del places[known]
        self.changed[path] = where
        self._key_places[path] = where_key
        for length in range(1, len(path) + 1):
            self._places.setdefault(path[:length], where)


def _split_setting(text: str, where: str, form: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")) or "\n" in text:
        raise ScenarioError(f"write it as {form}", where)
    return path, value


def _parse_value(text: str, where: str) -> Any:
    try:
        return YamlDocument(f"value:\n  {text}", where).data["value"]
    except ScenarioError as error:
        raise ScenarioError([Problem(p.message, where) for p in error.problems]) from None


def _next_key(inner: Any, rest: list[str], where: str) -> tuple[str | int, list[str]]:
    """The next step of a path: the longest key that exists, or else one word; and the rest."""
    if isinstance(inner, list):
        index = int(rest[0]) if re.fullmatch("[0-9]{1,9}", rest[0]) else len(inner)
        if index >= len(inner):
            raise ScenarioError(f"no element {rest[0]} in a list of {len(inner)}", where)
        return index, rest[1:]
    for length in range(len(rest), 0, -1):
        key = ".".join(rest[:length])
        if key in inner:
            return key, rest[length:]
    return rest[0], rest[1:]


def _step_into(inner: Any, key: str | int, path: ValuePath, where: str) -> Any:
    if isinstance(inner, dict) and inner.get(key) is None:
        if path[:-1] == ("variants",):
            _find_variant(inner, key, where)
        inner[key] = {}
    if isinstance(inner[key], str) and "policies" in path[-2:-1]:
        inner[key] = {"kind": inner[key]}
    if not isinstance(inner[key], dict | list):
        raise ScenarioError(f"{key} is {describe(inner[key])}; it has no keys", where)
    return inner[key]


def _find_variant(variants: Any, name: str | int, where: str) -> None:
    if name not in variants:
        raise ScenarioError(f"no variant {name!r}; there is {', '.join(variants)}", where)


def read(path: Path) -> YamlDocument:
    """Read a scenario file.

    Raises:
        ScenarioError: If it cannot be read or is not YAML; the message names line and column.
    """
    return YamlDocument(read_text(path), str(path), path.parent)


def read_text(path: Path) -> str:
    """The text of a scenario file.

    Raises:
        ScenarioError: If it cannot be read, is too large or is not UTF-8.
    """
    try:
        if not path.is_file():
            raise ScenarioError("is not a file", path)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"cannot be read: {error.strerror}", path) from None
    if len(data) > MAX_BYTES:
        raise ScenarioError(f"is larger than {MAX_BYTES} bytes", path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ScenarioError("is not UTF-8", f"{path}:{line}:1") from None


def _check_depth(text: str, name: str) -> None:
    """Refuse deep nesting before the document is read recursively."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    where = _place(name, event.start_mark)
                    raise ScenarioError(f"nested more than {MAX_DEPTH} deep", where)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, name) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = f"{name}:{before.count(chr(10)) + 1}:{error.position - before.rfind(chr(10))}"
        raise ScenarioError("not YAML: a control character", place) from None


def _syntax_error(error: yaml.MarkedYAMLError, name: str) -> ScenarioError:
    where = _place(name, error.problem_mark or error.context_mark)
    return ScenarioError(f"not YAML: {error.problem or error.context}", where)


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name


def describe(value: object) -> str:
    """A short description of a value."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = f"the text {value!r}" if isinstance(value, str) else repr(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."


@contextmanager
def locate_errors(document: YamlDocument, *path: str) -> Iterator[None]:
    """Inside, an input error without a place gets that of a value of the scenario."""
    try:
        yield
    except InputError as error:
        place = document.where(path)
        problems = [p if p.where else Problem(p.message, place) for p in error.problems]
        raise type(error)(problems) from None
