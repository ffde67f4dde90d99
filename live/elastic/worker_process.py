"""The process of a node of an elastic training, as the coordinator sees it."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from wattkeeper.live.elastic.orders import NO_STATE, LeaveGroup, Order, Reply
from wattkeeper.live.elastic.replica import MakeReplica
from wattkeeper.live.elastic.worker import run_worker
from wattkeeper.policies.errors import EnvironmentLacks

PRELOADED: Final = ("torch.distributed", "torch._dynamo", "wattkeeper.live.elastic.training")
"""What the process that workers are forked from has loaded, so that they start quickly; optimizers
would load the second one in each worker, which takes seconds."""


class WorkerProcess:
    """See the module. It starts when it is made.

    Args:
        node: Its node.
        make: Makes its replica.
        output: File for what it prints.
        timeout_s: How long it waits for other workers, s.

    Attributes:
        is_ready: Whether it made its replica.
        is_busy: Whether it owes a reply.
        steps: Steps after which its state is, by its last reply.
        noticed_s: When it announced that its node will be lost, s; infinite: it did not.

    Raises:
        EnvironmentLacks: If it cannot be started.
    """

    def __init__(self, node: int, make: MakeReplica, output: Path, timeout_s: float) -> None:
        context = get_context("forkserver")
        home = getattr(getattr(make, "func", make), "__module__", "torch")
        context.set_forkserver_preload([*PRELOADED, home])
        self._link: Connection[Order, Reply]
        self._link, link = context.Pipe()
        self._notices: Connection[bytes, bytes]
        self._notices, notices = context.Pipe(duplex=False)
        arguments = (link, notices, make, output, timeout_s)
        self._process = context.Process(target=run_worker, args=arguments, name=f"node {node}")
        try:
            self._process.start()
        except OSError as error:
            raise EnvironmentLacks(
                f"cannot start a worker for node {node}: {error.strerror or error}"
            ) from error
        link.close()
        notices.close()
        self.is_ready, self.is_busy = False, True
        self.steps, self.noticed_s = NO_STATE, math.inf

    @property
    def signs(self) -> tuple[Any, ...]:
        """What can be waited for: its replies, its notices, and its end."""
        return self._link, self._notices, self._process.sentinel

    @property
    def exit_code(self) -> int | None:
        """How it ended; None: it runs."""
        return self._process.exitcode

    def send(self, order: Order) -> None:
        """Give an order, which is not carried out if the process ended."""
        try:
            self._link.send(order)
            self.is_busy |= not isinstance(order, LeaveGroup)
        except OSError:
            self.is_busy = True

    def receive(self, happened: Collection[Any], now_s: float) -> Reply | None:
        """What it said, if it did; it may have announced that its node will be lost."""
        if self._notices in happened and os.read(self._notices.fileno(), 1):
            self.noticed_s = min(self.noticed_s, now_s)
        if self._link not in happened:
            return None
        try:
            reply = self._link.recv()
        except (EOFError, OSError):  # it ended: it closed its link
            self.kill()
            return None
        self.is_busy, self.steps = False, reply.steps
        return reply

    def announce(self) -> None:
        """Tell it that its node will be lost."""
        self._process.terminate()

    def has_ended(self) -> bool:
        """Whether it ended."""
        return not self._process.is_alive()

    def kill(self) -> None:
        """Kill it; one that ended is left alone, since another one may have its number."""
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def close(self) -> None:
        """Wait until it is gone, and let go of it."""
        self._process.join()
        self._link.close()
        self._notices.close()
