"""Who holds a lease: a process, and whether it still is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from wattkeeper.live.host import proc


def me() -> str:
    """Names this process among all of all hosts, and of all times."""
    pid = os.getpid()
    return " ".join((*_host(), str(pid), str(proc.started(pid))))


def is_dead(holder: str) -> bool:
    """Whether a process is known to be gone; False for one of another host, or container."""
    *host, pid, begun = holder.split(" ")
    return tuple(host) == _host() and proc.started(int(pid)) != int(begun)


def _host() -> tuple[str, str, str]:
    return socket.gethostname(), proc.boot(), str(Path("/proc/self/ns/pid").readlink())
