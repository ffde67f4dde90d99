"""Identity of processes, on all hosts and over reboots."""

import os
import socket
from pathlib import Path


def boot_id() -> str:
    """Id of the boot of this host; `unknown` where Linux does not give it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def start_ticks(pid: int) -> int:
    """Start of a process, in ticks since the boot; 0 if it has ended, zombies included.

    Together with the process id this is unique. psutil's time is one of the wall clock, which
    differs after the clock was set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return 0 if fields[0] in "ZX" else int(fields[19])


def identify() -> str:
    """Identity of this process, among those of all hosts and times."""
    pid = os.getpid()
    return " ".join((*_host(), str(pid), str(start_ticks(pid))))


def is_dead(identity: str) -> bool:
    """Whether a process is known to have ended; False for one of another host or container."""
    *host, pid, ticks = identity.split(" ")
    return tuple(host) == _host() and start_ticks(int(pid)) != int(ticks)


def _host() -> tuple[str, str, str]:
    return socket.gethostname(), boot_id(), str(Path("/proc/self/ns/pid").readlink())
