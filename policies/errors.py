"""The exceptions of wattkeeper.

::

    WattkeeperError
    ├── InputError          the user's input is wrong
    │   ├── ScenarioError   a scenario file: file, line, column
    │   ├── TraceError      a trace or profile: file, row
    │   ├── ProfileMissing  a job needs a profile that does not exist
    │   └── StoreError      a model of the zoo, or one to be added: file, tensor
    ├── PolicyError         a policy made an invalid decision
    │   └── PolicyFailed    a policy raised an exception
    └── EnvironmentLacks    a package, a device or a permission is missing
        └── DeviceError     a device operation failed
            ├── NoPermission  the user lacks the permission
            ├── NotSupported  the device does not support the operation
            └── DeviceLost    the device is gone

Input and policy errors carry one or more `Problem`s, so that all of them are shown at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from wattkeeper.policies.printable import printable

Point: TypeAlias = str
"""Name of a decision point (`wattkeeper.policies.points.point.POINTS`)."""

SHOWN = 20
"""Largest number of problems in a message."""
MOST_ALIKE = 3
"""Largest number of problems with one message that each have a line."""
LONGEST_MESSAGE = 800
"""Characters of a problem's message, and of its place; a longer one is cut in its middle."""


def cut_message(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """The text; one of more than `longest` (at least 100) characters without its middle."""
    if len(text) <= longest:
        return text
    end = longest // 4
    start = longest - end - 40
    left_out = f" ... ({len(text) - start - end:,} characters) ... "
    return text[:start] + left_out + text[-end:]


@dataclass(frozen=True, slots=True)
class Problem:
    """One error; of texts longer than `LONGEST_MESSAGE`, the start and the end.

    Attributes:
        message: What was found, what is allowed, and what to do.
        where: File with line and column, or file with row, in one line; empty where there is no
            such place.
    """

    message: str
    where: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", cut_message(self.message))
        object.__setattr__(self, "where", cut_message(self.where.replace("\n", "\\n")))

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.message}" if self.where else self.message)


def group_alike(problems: Sequence[Problem]) -> list[list[Problem]]:
    """The problems of each message, if they are more than `MOST_ALIKE`; each other one alone."""
    by_message: dict[str, list[Problem]] = {}
    for problem in problems:
        by_message.setdefault(problem.message, []).append(problem)
    groups: dict[int, list[Problem]] = {}
    for number, problem in enumerate(problems):
        alike = by_message[problem.message]
        merged = len(alike) > MOST_ALIKE
        groups.setdefault(id(alike) if merged else -number - 1, []).append(problem)
    return list(groups.values())


def merge_alike(problems: Sequence[Problem]) -> str:
    """One line for problems with one message: the first one, how many more, and the last place."""
    first, last, left = str(problems[0]), problems[-1].where, len(problems) - 1
    if not left:
        return first
    there = "" if last in ("", problems[0].where) else f", the last one at {printable(last)}"
    return f"{first} (and {left:,} more alike{there})"


class WattkeeperError(Exception):
    """Base of all exceptions; its text is a complete message for the user.

    Args:
        problems: One or more problems, or the message of one.
        where: The place of that one, as in `Problem`.
    """

    exit_code = 2

    def __init__(self, problems: str | Problem | Sequence[Problem], where: object = "") -> None:
        if isinstance(problems, str):
            problems = Problem(problems, str(where))
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        alike = group_alike(self.problems)
        lines = [merge_alike(group) for group in alike[:SHOWN]]
        if left := sum(map(len, alike[SHOWN:])):
            lines.append(f"... and {left} more")
        return "\n".join(lines)


class InputError(WattkeeperError):
    """The user's input is wrong (exit code 2)."""


class ScenarioError(InputError):
    """A scenario is wrong; each problem names file, line and column."""


class TraceError(InputError):
    """A trace or profile is wrong; each problem names the file and, where there is one, the row."""


class ProfileMissing(InputError):
    """A job asks for a workload, GPU type, batch size or power limit that was not profiled."""


class StoreError(InputError):
    """The zoo, a model in it, or a checkpoint to be added is wrong or missing."""


class PolicyError(WattkeeperError):
    """A policy made an invalid decision (exit code 2).

    Attributes:
        point: Decision point of the policy, if the error comes from a single one.
    """

    def __init__(
        self, problems: str | Problem | Sequence[Problem], point: Point | None = None
    ) -> None:
        super().__init__(problems)
        self.point = point


class PolicyFailed(PolicyError):
    """A policy raised an exception, or its answer has a wrong type (exit code 1).

    A note has the traceback of the policy's own lines.
    """

    exit_code = 1


class EnvironmentLacks(WattkeeperError):
    """A package, a device or a permission is missing (exit code 3)."""

    exit_code = 3


class DeviceError(EnvironmentLacks):
    """A device operation failed."""


class NoPermission(DeviceError):
    """The user lacks the permission for a device operation."""


class NotSupported(DeviceError):
    """A device does not support an operation."""


class DeviceLost(DeviceError):
    """A device is gone: fallen off the bus, or its driver was unloaded."""
