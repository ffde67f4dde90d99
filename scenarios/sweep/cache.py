"""The folder of an unfinished sweep; a file in it that is not whole counts as absent.

It is continued if it and all in it belong to this user, and nobody else may write it. Nothing in
it is executed: results of runs are JSON and tables (`wattkeeper.scenarios.sweep.unit_file`).
"""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import EnvironmentLacks, StoreError
from wattkeeper.scenarios.run.unit import UnitResult
from wattkeeper.scenarios.sweep.unit_file import decode_unit, encode_unit
from wattkeeper.traces.files.atomic import replace_file, settle
from wattkeeper.traces.files.locks import lock
from wattkeeper.traces.files.private import (
    check_own_tree,
    list_names,
    make_private_folder,
    open_own_folder,
    read_own_file,
)

MARK: Final = "wattkeeper-sweep.lock"
"""Marks a folder of an unfinished sweep; the process that works on it locks this file."""
OPTION: Final = "--out"


@contextmanager
def lock_folder(folder: Path) -> Iterator[int]:
    """Inside, the folder exists and no other process works in it; afterwards it stays if not empty.

    What a killed process left while it stored a value is removed. The value is a descriptor of the
    folder.

    Raises:
        StoreError: If it holds something else, belongs to another user, or others may write it.
        EnvironmentLacks: If another process works in it.
    """
    new_folders = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    if new_folders:
        make_private_folder(folder)
    descriptor = open_own_folder(folder, OPTION)
    try:
        release = _lock(folder, descriptor)
        try:
            check_own_tree(folder, OPTION)
            os.fchmod(descriptor, 0o700)  # made by an older wattkeeper
            for part in (folder, *(path for path in folder.iterdir() if path.is_dir())):
                settle(part)
            yield descriptor
        finally:
            if set(list_names(descriptor)) <= {MARK}:
                _remove_mark(folder, descriptor)
                for path in new_folders[1:]:
                    with suppress(OSError):
                        path.rmdir()
            release()
    finally:
        os.close(descriptor)


def _lock(folder: Path, descriptor: int) -> Callable[[], None]:
    names = list_names(descriptor)
    if names and MARK not in names:
        raise StoreError(
            f"{folder} holds no sweep of wattkeeper: remove it, or name another folder (--out)"
        )
    try:
        return lock(folder / MARK)
    except BlockingIOError:
        raise EnvironmentLacks(
            f"another process works on the sweep in {folder}: wait for it, or name another folder "
            "(--out)"
        ) from None


def _remove_mark(folder: Path, descriptor: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(MARK, dir_fd=descriptor)
    with suppress(OSError):
        folder.rmdir()


def remove_folder(folder: Path, descriptor: int) -> None:
    """Remove the folder of a finished sweep, which was opened as a descriptor.

    If this is killed, the rest is still marked, and no part of it looks whole.
    """
    gone = ".gone"
    with suppress(FileExistsError):
        os.mkdir(gone, dir_fd=descriptor)
    for name in list_names(descriptor):
        if name not in (MARK, gone):
            os.rename(
                name, f"{gone}/{uuid.uuid4().hex}", src_dir_fd=descriptor, dst_dir_fd=descriptor
            )
    shutil.rmtree(gone, dir_fd=descriptor)
    _remove_mark(folder, descriptor)


def store(path: Path, unit: UnitResult) -> None:
    """Write a unit to a file, whole or not at all.

    A digest stands before it, so that a file which a power failure cut short counts as absent.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    data = encode_unit(unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path, durable=False, private=True) as fresh, fresh.open("wb") as file:
        file.writelines((sha256(data).digest(), data))


def is_stored(path: Path) -> bool:
    """Whether a file holds a whole unit."""
    return _whole(path) is not None


def load(path: Path) -> UnitResult:
    """Read the unit in a file.

    Raises:
        EnvironmentLacks: If the file is missing or not whole.
        StoreError: If it is a link, or not of this user.
    """
    data = _whole(path)
    if data is None:
        raise EnvironmentLacks(f"{path} is gone or broken; start the same command again")
    return decode_unit(data)


def _whole(path: Path) -> memoryview | None:
    try:
        data = memoryview(read_own_file(path))
    except FileNotFoundError:
        return None
    return data[32:] if sha256(data[32:]).digest() == data[:32] else None


def link_folder(folder: Path, other: Path) -> None:
    """Link a folder's files into another folder, or copy them where there are no links."""
    try:
        shutil.copytree(folder, other, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(folder, other)
