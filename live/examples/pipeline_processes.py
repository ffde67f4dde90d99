"""Starts the processes of a pipeline on this host, and ends all once one of them fails."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from typing import Final

from torch import distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

TIMEOUT: Final = timedelta(seconds=60)
"""How long processes wait for each other to connect, or for data."""
GRACE_S: Final = 5.0
"""How long processes may take to notice that one failed, and again to end when told to, s."""


def run_ranks(train: Callable[[int], None], size: int) -> bool:
    """Run a function in so many processes, which torch.distributed connects.

    Returns:
        Whether all of them ended well.
    """
    context = get_context("fork")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ranks = [
            context.Process(target=_run, args=(train, rank, size, port), name=f"rank {rank}")
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
        # After the fork: it has threads. The processes connect as soon as it is there.
        store = TCPStore(
            "127.0.0.1",
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=os.dup(server.fileno()),
        )
        try:
            return _wait(ranks)
        finally:
            _end(ranks)
            del store


def _run(train: Callable[[int], None], rank: int, size: int, port: int) -> None:
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    train(rank)
    distributed.destroy_process_group()


def _wait(ranks: Sequence[BaseProcess]) -> bool:
    """Wait for all, or for the first that fails; return whether none did."""
    running = list(ranks)
    while running:
        connection.wait([rank.sentinel for rank in running])
        for rank in running:
            if rank.exitcode:
                print(f"{rank.name} ended with exit code {rank.exitcode}", file=sys.stderr)
                return False
        running = [rank for rank in running if rank.exitcode is None]
    return True


def _end(ranks: Sequence[BaseProcess]) -> None:
    for end in (None, BaseProcess.terminate, BaseProcess.kill):
        for rank in ranks:
            if end is not None and rank.is_alive():
                end(rank)
        for rank in ranks:
            rank.join(GRACE_S)
