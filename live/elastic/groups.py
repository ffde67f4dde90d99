"""Where the workers of a group find each other, and where a group takes its state from."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from wattkeeper.live.elastic.orders import NO_SOURCE, FormGroup
from wattkeeper.live.elastic.worker import HOST


class SavedState(NamedTuple):
    """The last checkpoint in storage.

    Attributes:
        steps: Steps after which its state is.
        path: Its file; None: there is none, and trainings begin anew.
    """

    steps: int = 0
    path: Path | None = None


class Origin(NamedTuple):
    """Where a group takes its state from.

    Attributes:
        steps: Steps after which that state is.
        storage: The checkpoint that all read; None: none is read.
        source: The node whose worker sends its state; `NO_SOURCE`: none does.
        receivers: The nodes that it sends its state to.
    """

    steps: int
    storage: Path | None = None
    source: int = NO_SOURCE
    receivers: tuple[int, ...] = ()

    @property
    def is_held(self) -> bool:
        """Whether a living worker has the state."""
        return self.source != NO_SOURCE


def origin_of(states: Mapping[int, int], saved: SavedState, from_storage: bool) -> Origin:
    """Where a group takes its state from.

    Args:
        states: Steps after which the states of its workers are, by node.
        saved: The last checkpoint in storage.
        from_storage: Whether it is to be read; it is as well if no worker has a later state.
    """
    steps = max(states.values())
    if from_storage or steps < saved.steps or steps < 0:
        return Origin(saved.steps, saved.path)
    source = min(node for node, own in states.items() if own == steps)
    receivers = tuple(sorted(node for node, own in states.items() if own != steps))
    return Origin(steps, None, source, receivers)


class GroupStore:
    """Lets the workers of groups find each other; a context manager. It listens on this host only.

    Raises:
        OSError: If no port is free.
    """

    def __init__(self) -> None:
        self._groups = 0

    def __enter__(self) -> Self:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        with socket.create_server((HOST, 0)) as server:
            self._port: int = server.getsockname()[1]
            self._store = TCPStore(
                HOST,
                self._port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=os.dup(server.fileno()),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._store

    def orders(self, nodes: Sequence[int], origin: Origin) -> dict[int, FormGroup]:
        """The orders that let the workers of nodes form a new group."""
        self._groups += 1
        ranks = {node: rank for rank, node in enumerate(nodes)}
        source = ranks.get(origin.source, NO_SOURCE)
        receivers = tuple(ranks[node] for node in origin.receivers)
        return {
            node: FormGroup(
                self._port, self._groups, rank, len(nodes), origin.storage, source, receivers
            )
            for node, rank in ranks.items()
        }
