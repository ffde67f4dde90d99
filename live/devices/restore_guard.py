"""The process that restores limits and clocks when the process that changed them has ended.

`PowerLimiter` starts it before the first change. It checks whether this user may change the limits,
records them, and waits for the end of its parent: until that process has ended or has closed the
pipe. The pipe alone would stay open in processes that the parent forked, as data loaders are.
"""

import json
import os
import select
import signal
from contextlib import ExitStack, suppress
from typing import Final, TypedDict

from wattkeeper.live.devices import find_device, limit_journal
from wattkeeper.live.host import process_identity
from wattkeeper.live.wire.clock import RemoteWallClock
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.traces.files.user_dirs import STATE

LOOK_EVERY_MS: Final = 500
"""Where the kernel cannot signal the end of a process, before Linux 5.3."""
LOCK_TIMEOUT_S: Final = 20.0
"""For the guard of a process that was killed just now."""


class GuardReply(TypedDict):
    """The answer to the parent: whether limits may be set now, and if not, why."""

    allowed: bool
    why: str


def main() -> int:
    """Guard the devices that a line on the standard input names.

    Returns:
        0 if all limits are restored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its parent has
    RemoteWallClock.waits = False
    with open(0, "rb", buffering=0, closefd=False) as pipe:  # unbuffered: `_wait` reads on
        line = pipe.readline()
    if not line:
        return 0
    request = json.loads(line)
    parent, uuids, clocks = request["pid"], request["uuids"], request["clocks"]
    with ExitStack() as locks:
        reply = GuardReply(allowed=True, why="")
        try:
            for uuid in sorted(uuids):
                locks.enter_context(limit_journal.hold_lock(uuid, LOCK_TIMEOUT_S))
                _take(uuid, parent, clocks)
        except WattkeeperError as error:
            reply = GuardReply(allowed=False, why=str(error))
        except OSError as error:
            why = f"{error.filename}: {error.strerror}; {STATE} names another folder for records"
            reply = GuardReply(allowed=False, why=why)
        if reply["allowed"]:
            _tell(reply)
            _wait(parent)
        records = [limit_journal.load(limit_journal.path(uuid)) for uuid in uuids]
        undone = [
            not limit_journal.undo(record).error
            for record in records
            if record is not None and record.pid == parent
        ]
        if not reply["allowed"]:
            _tell(reply)
        return int(not all(undone))


def _take(uuid: str, parent: int, clocks: bool) -> None:
    """Record the limit in force, and set it again, to check whether this user may.

    Where clocks are locked, the clock is unlocked first, to check the same. An existing record is
    the parent's own, whose former guard was killed, or was left behind by a process that was killed
    with its guard: the limit in that record is the one to restore.
    """
    limit_journal.refuse_if_in_use(uuid, parent)
    left = limit_journal.load(limit_journal.path(uuid))
    device = find_device(uuid)
    is_own = left is not None and left.pid == parent
    if left is not None and not is_own:
        limit_journal.restore(left, device)
    now_w = None if device.limits is None else device.limit_w()
    before_w = now_w if left is None else left.before_w
    has_clocks = left is not None and is_own and left.clocks
    record = limit_journal.LimitEntry(
        uuid, before_w, parent, process_identity.start_ticks(parent), has_clocks
    )
    limit_journal.save(record)
    if now_w is not None:
        device.set_limit_w(now_w)
    if clocks and not has_clocks:
        device.unlock_clock()
        limit_journal.save(record._replace(clocks=True))


def _tell(reply: GuardReply) -> None:
    with suppress(OSError):  # the parent may have ended meanwhile, which is seen next
        os.write(1, json.dumps(reply).encode() + b"\n")


def _wait(parent: int) -> None:
    """Return when the parent has closed the pipe or ended."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    every_ms: int | None = None
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
    except OSError:
        every_ms = LOOK_EVERY_MS
    while os.getppid() == parent:
        for file, _ in poll.poll(every_ms):
            if file != 0 or not os.read(0, 4096):
                return


if __name__ == "__main__":
    raise SystemExit(main())
