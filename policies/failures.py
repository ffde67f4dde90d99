"""The error that a user is shown if a policy raised one."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any, Protocol

from wattkeeper.policies.errors import Point, PolicyFailed, WattkeeperError

HOUSE = "wattkeeper.policies"
"""The package of the policies that come with wattkeeper."""

ANSWERS = {
    "configure": " (no Configuration)", "select": " (no Selection)", "place": " (no Placement)",
    "tune": " (no Knobs)", "retain": " (no Retention)",
}  # fmt: skip
"""What an answer of a wrong type is not, by method."""

MOST_CHARACTERS = 400
"""Of what a policy says."""


class _Config(Protocol):
    """Part of `wattkeeper.policies.registry.PolicyConfig`, which builds policies."""

    @property
    def point(self) -> Point: ...

    @property
    def kind(self) -> str: ...


def is_foreign(policy: object) -> bool:
    """Whether a policy is of another distribution, so that the types of its answers are checked."""
    return not type(policy).__module__.startswith(f"{HOUSE}.")


def explain_failure(
    config: _Config, error: BaseException, asked: Callable[..., Any], about: str = ""
) -> BaseException:
    """The error to raise in place of one that a policy raised.

    Args:
        config: The policy's config.
        error: What it raised. A `TypeError` from outside its own lines is a wrong answer.
        asked: The method that was called.
        about: Job and time, as named in the message.

    Returns:
        An error that names the policy, with the traceback of its own lines as a note; the same
        error, if that has a message for users, or interrupts the program.
    """
    if isinstance(error, WattkeeperError | KeyboardInterrupt):
        return error
    folders = _folders(config, asked)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.filename.startswith(folders)]  # fmt: skip
    told = _tell(error)
    method = getattr(asked, "__name__", "it")
    did = "raised "
    if not frames and isinstance(error, TypeError):
        did, told = f"gave an answer of a wrong type{ANSWERS.get(method, '')}: ", _cut(str(error))
    name = f"the {config.point} policy {config.kind!r}"
    failure = PolicyFailed(f"{name} failed{about}: {asked.__name__} {did}{told}", config.point)
    lines = traceback.StackSummary.from_list(frames).format()
    if not lines and hasattr(asked, "__code__"):
        code = asked.__code__
        lines = [f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}\n']
    if lines:
        failure.add_note(f"Lines of {name}:\n{''.join(lines).rstrip()}")
    return failure


def explain_import(entry: EntryPoint, error: BaseException) -> BaseException:
    """The error to raise in place of one that the module of an entry point raised on import.

    It names distribution and entry point, and has the module's own lines as a note. An error that
    has a message for users, or interrupts the program, is returned as it is.
    """
    if isinstance(error, WattkeeperError | KeyboardInterrupt):
        return error
    name = f"the entry point {entry.name!r} ({entry.value}) in the group {entry.group}"
    if entry.dist is not None:
        name = f"{name} of the distribution {entry.dist.name} {entry.dist.version}"
    failure = PolicyFailed(f"{name} cannot be loaded: {_tell(error)}; correct or uninstall it")
    house = (*(file.rpartition("/")[0] for file in (__file__, importlib.__file__)), "<frozen ")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith(house)]  # fmt: skip
    lines = traceback.StackSummary.from_list(frames).format()
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]
    if lines:
        failure.add_note(f"Lines of it:\n{''.join(lines).rstrip()}")
    return failure


def _tell(error: BaseException) -> str:
    return _cut(traceback.format_exception_only(error)[-1].strip())


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


@contextmanager
def explain_failures(config: _Config, asked: Callable[..., Any], about: str = "") -> Iterator[None]:
    """Inside, where a method of a policy is called, `explain_failure` replaces what it raises."""
    try:
        yield
    except BaseException as error:
        raise explain_failure(config, error, asked, about) from None


def _folders(config: _Config, asked: Callable[..., Any]) -> tuple[str, ...]:
    """Where the lines of a policy are: its package, or its file."""
    module = type(config).__module__
    package = HOUSE if module.startswith(f"{HOUSE}.") else module.partition(".")[0]
    found = [str(getattr(sys.modules.get(name), "__file__", None)) for name in (package, module)]
    folders = [path.removesuffix("__init__.py") for path in found]
    folders += getattr(sys.modules.get(package), "__path__", ())
    code = getattr(asked, "__code__", None)
    return (*folders, code.co_filename) if code is not None else tuple(folders)
