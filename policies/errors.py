"""Everything that wattkeeper raises on purpose.

::

    WattkeeperError
    ├── InputError          something that the user wrote or named is wrong
    │   ├── ScenarioError   a scenario file: file, line, column
    │   ├── TraceError      a trace or profile: file, row
    │   ├── ProfileMissing  a job asks for a profile that is not there
    │   └── StoreError      a model of the zoo, or one that shall go there: file, tensor
    ├── PolicyError         a policy chose what is not allowed
    └── EnvironmentLacks    a package, a device or a permission is absent
        └── DeviceError     a device does not do what it was asked
            ├── NoPermission  this user may not
            ├── NotSupported  this device never does that
            └── Lost          it is gone

Input and policy errors carry one or more `Problem`s, so that all of them are shown at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Point = Literal["configure", "select", "place", "tune", "retain"]
"""A decision point."""

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: What was found, what is allowed, and what to do.
        where: File with line and column, or file with row; empty where there is no such place.
    """

    message: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class WattkeeperError(Exception):
    """Base of all; its text is a complete message for the user."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN} more")
        return "\n".join(lines)


class InputError(WattkeeperError):
    """What the user wrote or named is wrong (exit code 2)."""


class ScenarioError(InputError):
    """A scenario is wrong; each problem names file, line and column."""


class TraceError(InputError):
    """A trace or profile is wrong; each problem names the file and, where there is one, the row."""


class ProfileMissing(InputError):
    """A job asks for a workload, GPU type, batch size or limit that was never profiled."""


class StoreError(InputError):
    """The zoo, a model in it, or a checkpoint that shall go there is wrong or not there."""


class PolicyError(WattkeeperError):
    """A policy chose what is not allowed (exit code 2).

    Attributes:
        point: Decision point of the policy, where one policy is to blame.
    """

    def __init__(
        self, problems: str | Problem | Sequence[Problem], point: Point | None = None
    ) -> None:
        super().__init__(problems)
        self.point = point


class EnvironmentLacks(WattkeeperError):
    """A package, a device or a permission is absent (exit code 3)."""

    exit_code = 3


class DeviceError(EnvironmentLacks):
    """A device does not do what it was asked."""


class NoPermission(DeviceError):
    """This user may not do that to a device."""


class NotSupported(DeviceError):
    """A device never does that."""


class DeviceLost(DeviceError):
    """A device is gone: fallen off the bus, or its driver was unloaded."""
