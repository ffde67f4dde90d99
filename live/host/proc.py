"""What Linux says of a host and its processes."""

from __future__ import annotations

from pathlib import Path


def boot() -> str:
    """Names the boot of this host; `unknown` where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def started(pid: int) -> int:
    """When a process started, in ticks since the boot; 0 if it has ended, zombies included.

    Together with the process id this is unique. psutil's time is one of the wall clock, which
    differs after the clock was set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return 0 if fields[0] in "ZX" else int(fields[19])
