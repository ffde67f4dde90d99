"""What all launchers of training processes offer."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

Gpu = tuple[int, int]
"""A node of the cluster, and one of its GPUs, from 0."""

ReportExit = Callable[[str, int | None], None]
"""Takes the run whose process has exited, and its exit code, if it is known."""


class LaunchRequest(NamedTuple):
    """A process that carries an attempt out.

    Attributes:
        run: Its id.
        command: The command.
        environment: Variables added to the environment.
        gpus: The GPUs that it holds, in ascending order.
    """

    run: str
    command: Sequence[str]
    environment: Mapping[str, str]
    gpus: tuple[Gpu, ...]


class Launcher(Protocol):
    """Starts processes, and reports their exits.

    Attributes:
        host: Address of the controller for sessions.
    """

    host: str

    def start(self, request: LaunchRequest) -> None:
        """Start a process; its exit is reported once."""

    def adopt(self) -> dict[str, tuple[Gpu, ...]]:
        """The running processes of an earlier controller, with their GPUs.

        Their exits are reported, too.
        """

    def kill(self, run: str) -> None:
        """Kill the processes of a run."""

    def close(self) -> None:
        """Kill the processes of all runs."""
