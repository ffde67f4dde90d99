"""Who holds a lease: a process, and whether it still is."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def me() -> str:
    """Names this process among all of all hosts, and of all times."""
    pid = os.getpid()
    return " ".join((*_host(), str(pid), _begun(pid) or ""))


def is_dead(holder: str) -> bool:
    """Whether a process is known to be gone; False for one of another host, or container."""
    *host, pid, begun = holder.split(" ")
    return tuple(host) == _host() and _begun(int(pid)) != begun


def _host() -> tuple[str, str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return socket.gethostname(), boot, str(Path("/proc/self/ns/pid").readlink())


def _begun(pid: int) -> str | None:
    """Clock ticks from the boot to a process's start; None if it is gone, or dead and unburied."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
