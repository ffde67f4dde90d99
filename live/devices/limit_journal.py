"""Records of power limits and clocks before a process sets them, in files that outlive it.

::

    STATE/limits/BOOT/DEVICE.lock    held by the guard of the process that controls the device
    STATE/limits/BOOT/DEVICE.json    the record, from before the first change until it is undone

The folder is named after the boot of the host: power limits do not outlive it, and hosts that share
a home directory keep apart.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wattkeeper.live.devices import find_device
from wattkeeper.live.devices.device import Device
from wattkeeper.live.host import process_identity
from wattkeeper.policies.errors import NoPermission, WattkeeperError
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.locks import lock
from wattkeeper.traces.files.private import make_private_folder, read_own_file
from wattkeeper.traces.files.user_dirs import state_folder


class LimitEntry(NamedTuple):
    """The power limit of a device before a process changed it, and whether it locks clocks.

    Attributes:
        uuid: Of the device.
        before_w: The power limit to restore, W; None if it takes none.
        pid: The process that changes it.
        started: When that process started, in ticks since the boot: process ids come again. 0 if
            it is done with the device.
        clocks: Whether it locks the clock, which is to be unlocked then.
    """

    uuid: str
    before_w: float | None
    pid: int
    started: int
    clocks: bool = False

    @property
    def owner_lives(self) -> bool:
        """Whether the process that changes it still runs."""
        return self.started != 0 and process_identity.start_ticks(self.pid) == self.started


class RestoredLimit(NamedTuple):
    """The outcome of restoring what a process left behind.

    Attributes:
        record: What was, or should be, restored.
        error: Why it was not; empty if it was.
    """

    record: LimitEntry
    error: str


def folder() -> Path:
    """The folder of the records of this boot; it need not exist."""
    return state_folder() / "limits" / process_identity.boot_id()


def path(uuid: str) -> Path:
    """The file of a device's record."""
    return folder() / f"{hashlib.sha256(uuid.encode()).hexdigest()[:32]}.json"


def load(file: Path) -> LimitEntry | None:
    """Read a record; None if there is none.

    Raises:
        StoreError: If it belongs to another user.
    """
    try:
        return LimitEntry(**json.loads(read_own_file(file)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # only a damaged disk: records appear whole
        file.unlink(missing_ok=True)
        return None


def save(record: LimitEntry) -> None:
    """Write a record durably."""
    file = path(record.uuid)
    make_private_folder(file.parent)
    with replace_file(file, private=True) as new:
        new.write_text(json.dumps(record._asdict()), encoding="ascii")


def undo(record: LimitEntry) -> RestoredLimit:
    """Restore what a record says, and remove it; if that fails, it stays, without an owner."""
    try:
        restore(record, find_device(record.uuid))
    except WattkeeperError as error:
        save(record._replace(started=0))
        return RestoredLimit(record, str(error))
    path(record.uuid).unlink(missing_ok=True)
    return RestoredLimit(record, "")


def restore(record: LimitEntry, device: Device) -> None:
    """Set the limit of a record, and unlock the clock if it was locked.

    Raises:
        WattkeeperError: If the device refuses, or is gone.
    """
    if record.clocks:
        device.unlock_clock()
    if record.before_w is not None and device.limit_w() != record.before_w:
        device.set_limit_w(record.before_w)


def recover(ended: int | None = None) -> list[RestoredLimit]:
    """Restore what other processes left behind, except those that still run.

    `ended` is a process that still runs, and is done with its limits all the same.
    """
    undone = []
    for file in sorted(folder().glob("*.json")):
        record = load(file)
        if record is None or (record.owner_lives and record.pid != ended):
            continue
        try:
            with hold_lock(record.uuid):
                if again := load(file):
                    undone.append(undo(again))
        except NoPermission:
            continue
    return undone


@contextmanager
def hold_lock(uuid: str, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a device.

    Args:
        uuid: Of the device.
        patience_s: How long to wait for the guard of a process that has ended, s.

    Raises:
        NoPermission: If another process holds it.
    """
    file = path(uuid).with_suffix(".lock")
    make_private_folder(file.parent)
    until_s = time.monotonic() + patience_s
    release: Callable[[], None] | None = None
    while release is None:
        try:
            release = lock(file)
        except BlockingIOError:
            record = load(path(uuid))
            if time.monotonic() >= until_s or (record is not None and record.owner_lives):
                raise NoPermission(_in_use(uuid)) from None
            time.sleep(0.01)
    try:
        yield
    finally:
        release()


def refuse_if_in_use(uuid: str, me: int) -> None:
    """Refuse a device that another process controls, though its guard has ended.

    Raises:
        NoPermission: It names that process.
    """
    record = load(path(uuid))
    if record is not None and record.owner_lives and record.pid != me:
        raise NoPermission(_in_use(uuid))


def _in_use(uuid: str) -> str:
    record = load(path(uuid))
    who = "another process" if record is None else f"process {record.pid}"
    return f"{who} of wattkeeper controls the power limit of {uuid} already; wait until it ends"
