"""The error that a user is shown if a policy raised one."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from wattkeeper.policies.errors import Point, PolicyFailed, WattkeeperError, cut_message
from wattkeeper.policies.points.point import POINTS

HOUSE = "wattkeeper.policies"
"""The package of the policies that come with wattkeeper."""

MOST_CHARACTERS = 400
"""Of what a policy says."""


class _Config(Protocol):
    """Part of `wattkeeper.policies.registry.PolicyConfig`, which builds policies."""

    @property
    def point(self) -> Point: ...

    @property
    def kind(self) -> str: ...


def is_foreign(defined: type) -> bool:
    """Whether a policy's class, or its config's, is of another distribution."""
    return not defined.__module__.startswith(f"{HOUSE}.")


def explain_failure(
    config: _Config, error: BaseException, method: Callable[..., Any], about: str = ""
) -> BaseException:
    """The error to raise in place of one that a policy raised.

    Args:
        config: The policy's config.
        error: What it raised. A `TypeError` from outside its own lines is a wrong answer.
        method: The method that was called.
        about: Job and time, as named in the message.

    Returns:
        An error that names the policy, with the traceback of its own lines as a note; the same
        error, if that has a message for users, or is not the policy's own (see `_passes`).
    """
    folders = _folders(config, method)
    if _passes(error, folders):
        return error
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(folders)
    ]
    method_name = getattr(method, "__name__", "it")
    event = f"raised {describe_error(error)}"
    if not frames and isinstance(error, TypeError):
        reason = cut_message(str(error), MOST_CHARACTERS)
        needed = f" (no {POINTS[method_name].answer})" if method_name in POINTS else ""
        event = f"gave an answer of a wrong type{needed}: {reason}"
    name = f"the {config.point} policy {config.kind!r}"
    failure = PolicyFailed(f"{name} failed{about}: {method_name} {event}", config.point)
    lines = traceback.StackSummary.from_list(frames).format()
    if not lines and hasattr(method, "__code__"):
        code = method.__code__
        lines = [f'  File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}\n']
    if lines:
        failure.add_note(f"Lines of {name}:\n{''.join(lines).rstrip()}")
    return failure


def explain_import(name: str, error: BaseException, advice: str) -> BaseException:
    """The error to raise in place of one that a module with policies raised on import.

    Args:
        name: Where the module comes from, as named in the message.
        error: What it raised.
        advice: What to do.

    Returns:
        An error that has the module's own lines as a note; the same error, if that has a message
        for users, or is not the module's own.
    """
    if _passes(error):
        return error
    failure = PolicyFailed(f"{name} cannot be loaded: {describe_error(error)}; {advice}")
    house = (*(file.rpartition("/")[0] for file in (__file__, importlib.__file__)), "<frozen ")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(house)
    ]
    lines = traceback.StackSummary.from_list(frames).format()
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]
    if lines:
        failure.add_note(f"Lines of it:\n{''.join(lines).rstrip()}")
    return failure


def _passes(error: BaseException, folders: tuple[str, ...] = ()) -> bool:
    """Whether an error is no failure of a policy, whose lines are in these folders.

    That is one with a message for users, and one that ends the program or a session, as handlers
    of signals raise it while a policy is asked: KeyboardInterrupt, and another one that is no
    `Exception` if wattkeeper or the script of the process raised it.
    """
    if isinstance(error, Exception):
        return isinstance(error, WattkeeperError)
    if isinstance(error, KeyboardInterrupt):
        return True
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    if folders and frame.f_code.co_filename.startswith(folders):
        return False
    return str(frame.f_globals.get("__name__")).partition(".")[0] in {"wattkeeper", "__main__"}


def describe_error(error: BaseException) -> str:
    """An exception on one line, cut where it is long."""
    words = traceback.format_exception_only(error)[-1].split()
    return cut_message(" ".join(words), MOST_CHARACTERS)


@contextmanager
def explain_failures(
    config: _Config, method: Callable[..., Any], about: str = ""
) -> Iterator[None]:
    """Inside, where a method of a policy is called, `explain_failure` replaces what it raises."""
    try:
        yield
    except BaseException as error:
        raise explain_failure(config, error, method, about) from None


def _folders(config: _Config, method: Callable[..., Any]) -> tuple[str, ...]:
    """Where the lines of a policy are: its package, or its file."""
    module = type(config).__module__
    package = HOUSE if module.startswith(f"{HOUSE}.") else module.partition(".")[0]
    files = [str(getattr(sys.modules.get(name), "__file__", None)) for name in (package, module)]
    folders = [path.removesuffix("__init__.py") for path in files]
    folders += getattr(sys.modules.get(package), "__path__", ())
    code = getattr(method, "__code__", None)
    return (*folders, code.co_filename) if code is not None else tuple(folders)
