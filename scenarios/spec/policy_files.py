"""Files of policies: modules that a scenario, or `--policy`, names by their path.

A file is executed from the text that was read when the scenario was loaded. A config that it
defines carries that text to other processes and hosts, where it is executed again: all runs of a
scenario follow the same text, even if the file changes while they run.
"""

import copyreg
import inspect
import json
import linecache
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import PurePath
from types import ModuleType
from typing import Any, NamedTuple

from wattkeeper.policies.errors import InputError, PolicyError, Problem, WattkeeperError
from wattkeeper.policies.failures import explain_import
from wattkeeper.policies.parts import FORECASTS, AsidePart, Part, add_parts, find_part, set_aside
from wattkeeper.policies.points.policy import Policy

PREFIX = "policy_file_"
"""Start of the names of their modules."""


class PolicyFile(NamedTuple):
    """A file of policies.

    Attributes:
        name: As the scenario or the command names it.
        path: The same with the folder that it is relative to.
        source: Its text.
    """

    name: str
    path: str
    source: str

    @property
    def sha256(self) -> str:
        """Digest of its text."""
        return sha256(self.source.encode()).hexdigest()


def list_changes(files: Sequence[PolicyFile], before: Mapping[str, str]) -> list[str]:
    """File and first changed line of each file whose text is another one than before.

    Args:
        files: The files now.
        before: Their texts before, by name.
    """
    places = []
    for file in files:
        text = before.get(file.name, file.source)
        if text != file.source:
            pairs = zip_longest(text.splitlines(), file.source.splitlines())
            lines = (number for number, (old, new) in enumerate(pairs, 1) if old != new)
            places.append(f"{file.path}:{next(lines, 1)}")
    return places


def register_policy_files(files: Sequence[PolicyFile]) -> None:
    """Add the policies and forecasts of these files to the registry, in place of those before.

    Raises:
        WattkeeperError: If a file cannot be executed, registers nothing, or takes a kind that is
            taken; the message names file and line.
    """
    add_parts([])
    added: dict[tuple[str, str], AsidePart] = {}
    problems: list[Problem] = []
    for aside in (aside for file in files for aside in load_policy_file(file)):
        kind = kind_of(aside.part)
        known = added.get((aside.room, kind))
        before = find_part(aside.room, kind) if known is None else known.part
        if before is not None:
            plural = FORECASTS if aside.room == FORECASTS else f"{aside.room} policies"
            here, there = place_of(aside.part), place_of(before)
            problems.append(Problem(f"two {plural} are called {kind!r}: here and {there}", here))
        added[aside.room, kind] = aside
    if problems:
        raise PolicyError(problems)
    add_parts(added.values())


@cache
def load_policy_file(file: PolicyFile) -> tuple[AsidePart, ...]:
    """Execute a file; the config classes that it defines.

    Raises:
        WattkeeperError: If it cannot be executed, or defines none; the message names file and line.
    """
    stem = re.sub(r"\W", "_", PurePath(file.path).stem)
    key = sha256(f"{file.path}\n{file.source}".encode()).hexdigest()[:12]
    module, found = execute_policy_file(file, f"{PREFIX}{stem}_{key}")
    if not found:
        raise InputError(*_explain_nothing(module, file))
    for room, part in found:
        copyreg.pickle(part, partial(_reduce, file, room))
    return tuple(found)


def execute_policy_file(file: PolicyFile, name: str) -> tuple[ModuleType, list[AsidePart]]:
    """Execute a file as a module of this name; the module and the config classes of the file.

    Raises:
        WattkeeperError: If it cannot be executed; the message names file and line.
    """
    module, found = ModuleType(name), set_aside(name)
    found.clear()
    module.__file__ = file.path
    sys.modules[name] = module
    lines = file.source.splitlines(keepends=True)
    linecache.cache[file.path] = (len(file.source), None, lines, file.path)
    try:
        exec(compile(file.source, file.path, "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        del sys.modules[name]
        raise _explain(file, error) from None
    return module, found


def kind_of(part: type[Part]) -> str:
    """The kind of a config class."""
    return str(part.model_fields["kind"].default)


def place_of(defined: type) -> str:
    """File and line of a class of a policy file; the full name of another one."""
    if not defined.__module__.startswith(PREFIX):
        return f"{defined.__module__}.{defined.__qualname__}"
    return f"{sys.modules[defined.__module__].__file__}:{inspect.getsourcelines(defined)[1]}"


def policies_in(module: ModuleType) -> list[type[Policy]]:
    """The policies that a module defines, in their order."""
    return [
        defined
        for defined in vars(module).values()
        if isinstance(defined, type)
        and issubclass(defined, Policy)
        and defined.__module__ == module.__name__
    ]


def _explain_nothing(module: ModuleType, file: PolicyFile) -> tuple[str, str]:
    """Message and place, for a file that defines no config."""
    advice = (
        "define a class derived from wattkeeper.policies.registry.PolicyConfig with its decision "
        "point (`point`), its name (`kind`) and its policy (`policy`)"
    )
    for policy in policies_in(module):
        base = next(base for base in policy.__mro__ if base.__module__.startswith("wattkeeper."))
        what = f"no config registers {policy.__name__}, a policy derived from {base.__name__}"
        return f"{what}: {advice}", place_of(policy)
    return f"the file registers no policy: {advice}", f"{file.path}:1"


def _explain(file: PolicyFile, error: BaseException) -> BaseException:
    """The error to raise in place of one that a file raised when it was executed."""
    trace = error.__traceback__
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == file.path]
    if isinstance(error, SyntaxError) and error.filename == file.path:
        lines.append(error.lineno)
    error.__traceback__ = trace and trace.tb_next
    explained = explain_import("the policy file", error, "correct it")
    if not isinstance(explained, WattkeeperError):
        return explained
    place = ":".join([file.path, *(str(line) for line in lines[-1:] if line)])
    located = type(explained)(
        [each if each.where else Problem(each.message, place) for each in explained.problems]
    )
    for note in getattr(explained, "__notes__", ()):
        located.add_note(note)
    return located


def _reduce(file: PolicyFile, room: str, config: Part) -> tuple[Any, ...]:
    return _restore, (file, room, config.model_dump_json())


def _restore(file: PolicyFile, room: str, text: str) -> Part:
    """The config that another process or host sent."""
    kind = json.loads(text)["kind"]
    part = next(
        part for own, part in load_policy_file(file) if (own, kind_of(part)) == (room, kind)
    )
    return part.model_validate_json(text)
