"""The process of a node of an elastic training: it carries out the orders of the coordinator."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from wattkeeper.live.elastic.orders import (
    NO_SOURCE,
    NO_STATE,
    FormGroup,
    LeaveGroup,
    Order,
    Reply,
    SaveState,
    TrainStep,
)
from wattkeeper.live.elastic.replica import (
    MakeReplica,
    Replica,
    add_up,
    apply_total,
    microbatch_gradients,
)
from wattkeeper.live.session.checkpoint import restore, save
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.traces.files.private import open_private

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroupGloo

HOST: Final = "127.0.0.1"


def run_worker(
    link: Connection[Reply, Order],
    notices: Connection[bytes, bytes],
    make: MakeReplica,
    output: Path,
    timeout_s: float,
) -> None:
    """Carry out orders until the coordinator is gone.

    Args:
        link: To the coordinator.
        notices: To the coordinator, too: a byte for each SIGTERM, which announces that the node
            will be lost.
        make: Makes the replica.
        output: File for what the process prints.
        timeout_s: How long to wait for other workers, s.
    """

    def announce(number: int, frame: object) -> None:
        with suppress(OSError):  # the coordinator is gone
            os.write(notices.fileno(), b".")

    signal.signal(signal.SIGTERM, announce)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends its workers
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with open(output, "ab", opener=open_private) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # nothing that was printed is lost with it
    try:
        worker = Worker(link, make, timeout_s)
        link.send(worker.begin())
        while True:
            order = link.recv()
            if isinstance(order, LeaveGroup):
                worker.leave()
            else:
                link.send(worker.answer(order))
    except (EOFError, OSError):  # the coordinator is gone
        os._exit(1)  # a thread may wait for a group


class GroupBroken(Exception):
    """Another worker of the group is gone."""


class Worker:
    """See the module; `run_worker` has the arguments."""

    def __init__(self, link: Connection[Reply, Order], make: MakeReplica, timeout_s: float) -> None:
        import torch

        torch.set_num_threads(1)
        self._link, self._make = link, make
        self._timeout = timedelta(seconds=timeout_s)
        self._replica: Replica
        self._steps = NO_STATE
        self._group: ProcessGroupGloo | None = None

    def begin(self) -> Reply:
        """Make the replica."""
        try:
            self._replica = self._make()
        except Exception as error:
            return self._failure(error)
        return Reply("done", NO_STATE)

    def answer(self, order: FormGroup | TrainStep | SaveState) -> Reply:
        """Carry out an order."""
        try:
            if isinstance(order, FormGroup):
                sent_bytes = self._form(order)
                return Reply("done", self._steps, sent_bytes=sent_bytes)
            if isinstance(order, TrainStep):
                loss = self._train(order)
                return Reply("done", self._steps, loss=loss)
            save(order.path, {"replica": self._replica, "steps": StepCount(self._steps)})
            return Reply("done", self._steps)
        except GroupBroken as error:
            self.leave()  # the others notice that this connection is closed
            return Reply("broken", self._steps, text=str(error))
        except Exception as error:
            self.leave()
            return self._failure(error)

    def leave(self) -> None:
        """Close the connections to the group."""
        self._group = None

    def _failure(self, error: Exception) -> Reply:
        kind = "" if isinstance(error, WattkeeperError) else f"{type(error).__name__}: "
        return Reply("failed", self._steps, text=f"{kind}{error}")

    def _train(self, order: TrainStep) -> float:
        """Train a step; returns its mean loss."""
        parts = microbatch_gradients(
            self._replica, self._steps, order.first, order.end, order.microbatch
        )
        loss = apply_total(self._replica, self._add_up(parts), order.batch)
        self._steps += 1
        return loss

    def _add_up(self, parts: list[Tensor]) -> Tensor:
        """What the parts of all workers add up to, in the order of ranks.

        Each worker adds its parts to the total of the one before it: a sum of all workers at once
        would be rounded differently on another number of them.
        """
        import torch

        assert self._group is not None
        rank, last = self._group.rank(), self._group.size() - 1
        total: Tensor | None = None
        if rank > 0:
            total = torch.empty_like(parts[0])
            self._wait("recv", [total], rank - 1, 0)
        total = add_up(total, parts)
        if rank < last:
            self._wait("send", [total], rank + 1, 0)
        self._wait("broadcast", total, last)
        return total

    def _form(self, order: FormGroup) -> int:
        """Take a group's state over; returns how many bytes this worker sent for it."""
        import torch

        self.leave()
        self._group = self._connect(order)
        sent_bytes = 0
        if order.storage is not None:
            self._replica, steps = self._make(), StepCount(NO_STATE)
            restore(order.storage, {"replica": self._replica, "steps": steps})
            self._steps = steps.steps
        elif order.source == NO_SOURCE:
            self._replica, self._steps = self._make(), 0
        elif order.rank == order.source and order.receivers:
            sent_bytes = self._send_state(order.receivers)
        elif order.rank in order.receivers:
            self._receive_state(order.source)
        self._wait("allreduce", [torch.zeros(1)])  # all of them are ready
        return sent_bytes

    def _connect(self, order: FormGroup) -> ProcessGroupGloo:
        """Connect to a group, until the coordinator has another order.

        A thread connects, since it would otherwise wait out a worker that does not come.
        """
        from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

        groups: list[ProcessGroupGloo] = []
        ended, ends = connection.Pipe(duplex=False)

        def connect() -> None:
            with ends, suppress(RuntimeError):  # not all came, or the coordinator is gone
                store = TCPStore(HOST, order.port, is_master=False, timeout=self._timeout)
                named = PrefixStore(f"group-{order.group}", store)
                groups.append(ProcessGroupGloo(named, order.rank, order.size, self._timeout))

        Thread(target=connect, daemon=True).start()
        connection.wait([ended, self._link])
        if not groups:
            raise GroupBroken("not all workers of the group came")
        return groups[0]

    def _send_state(self, receivers: tuple[int, ...]) -> int:
        """Send this worker's state to others; returns how many bytes."""
        import torch

        buffer = io.BytesIO()
        torch.save((self._steps, self._replica.state_dict()), buffer)
        content = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        for receiver in receivers:
            self._wait("send", [torch.tensor([len(content)])], receiver, 0)
            self._wait("send", [content], receiver, 1)
        return len(content) * len(receivers)

    def _receive_state(self, source: int) -> None:
        import torch

        size = torch.zeros(1, dtype=torch.int64)
        self._wait("recv", [size], source, 0)
        content = torch.zeros(int(size), dtype=torch.uint8)
        self._wait("recv", [content], source, 1)
        steps, state = torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)
        self._replica, self._steps = self._make(), NO_STATE
        self._replica.load_state_dict(state)
        self._steps = steps

    def _wait(self, name: str, *arguments: Any) -> None:
        """Carry out an operation of the group."""
        try:
            getattr(self._group, name)(*arguments).wait()
        except RuntimeError as error:
            raise GroupBroken(str(error).partition("\n")[0]) from None


class StepCount:
    """The steps of a checkpoint.

    Attributes:
        steps: Steps that were trained.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def state_dict(self) -> int:
        """The steps."""
        return self.steps

    def load_state_dict(self, state: int) -> None:
        """Take steps over."""
        self.steps = state
