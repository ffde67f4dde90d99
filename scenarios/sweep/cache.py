"""The folder of an unfinished sweep; a file in it that is not whole counts as absent."""

import os
import pickle
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from wattkeeper.policies.errors import EnvironmentLacks, StoreError
from wattkeeper.traces.files.atomic import replace_file, settle
from wattkeeper.traces.files.locks import lock

MARK: Final = "wattkeeper-sweep.lock"
"""Marks a folder of an unfinished sweep; the process that works on it locks this file."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Inside, the folder exists and no other process works in it; afterwards it stays if not empty.

    What a killed process left while it stored a value is removed.

    Raises:
        StoreError: If it holds something else.
        EnvironmentLacks: If another process works in it.
    """
    mark = folder / MARK
    if folder.exists() and not mark.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(
            f"{folder} holds no sweep of wattkeeper: remove it, or name another folder (--out)"
        )
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        release = lock(mark)
    except BlockingIOError:
        raise EnvironmentLacks(
            f"another process works on the sweep in {folder}: wait for it, or name another folder "
            "(--out)"
        ) from None
    try:
        for part in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            settle(part)
        yield
    finally:
        if folder.exists() and {path.name for path in folder.iterdir()} <= {MARK}:
            shutil.rmtree(folder)
            for path in new_folders[1:]:
                with suppress(OSError):
                    path.rmdir()
        release()


def remove_folder(folder: Path) -> None:
    """Remove the folder of a finished sweep.

    If this is killed, the rest is still marked, and no part of it looks whole.
    """
    gone = folder / ".gone"
    gone.mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        if path.name not in (MARK, gone.name):
            path.rename(gone / uuid.uuid4().hex)
    shutil.rmtree(gone)
    shutil.rmtree(folder)


def store(path: Path, content: object) -> None:
    """Write a value to a file, whole or not at all.

    A digest stands before it, so that a file which a power failure cut short counts as absent.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    buffer = BytesIO()
    _Pickler(buffer, protocol=5).dump(content)
    data = buffer.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path, durable=False) as fresh, fresh.open("wb") as file:
        file.writelines((sha256(data).digest(), data))


class _Pickler(pickle.Pickler):
    """Stores a table as a whole, and not each of its buffers as an object."""

    def reducer_override(self, value: Any) -> Any:
        """How to restore a table; other values as ever."""
        if type(value) is not pa.Table:
            return NotImplemented
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as stream:
            stream.write_table(value)
        return _restore_table, (sink.getvalue().to_pybytes(),)


def _restore_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def is_stored(path: Path) -> bool:
    """Whether a file holds a whole value."""
    return _whole(path) is not None


def load(path: Path) -> Any:
    """Read the value in a file.

    Raises:
        EnvironmentLacks: If the file is missing or not whole.
    """
    data = _whole(path)
    if data is None:
        raise EnvironmentLacks(f"{path} is gone or broken; start the same command again")
    return pickle.loads(data)


def _whole(path: Path) -> memoryview | None:
    try:
        data = memoryview(path.read_bytes())
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
