"""Files and folders that appear whole or not at all, and survive a power failure once they do."""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from wattkeeper.policies.errors import EnvironmentLacks


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Inside, a fresh folder to be filled; it takes the place of `folder` at the end.

    If anything fails, what was there before stays. A kill leaves the fresh one beside the place,
    or, between the two renames, what was there before; see `is_leftover`.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    fresh, old = _beside(folder, "new"), _beside(folder, "old")
    try:
        fresh.mkdir(parents=True)
        yield fresh
        for path in fresh.rglob("*"):
            sync(path)
        sync(fresh)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        sync(folder.parent)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise _refused(folder, error) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replace_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Inside, the name of a fresh file to be written; it takes the place of `path` at the end.

    If anything fails, what was there before stays. A kill leaves the fresh one beside the place;
    see `is_leftover`. Only writing belongs inside: any OSError there is reported as one of writing.
    A file that is not `durable` costs no sync, but may be cut short by a power failure.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    fresh = _beside(path, "new")
    try:
        yield fresh
        if durable:
            move_file(fresh, path)
        else:
            fresh.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            fresh.unlink()


def move_file(source: Path, path: Path) -> None:
    """Give a complete file its final name, durably; both names are on one file system."""
    sync(source)
    source.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk.

    Folders are not synced where the file system, or a missing right to read them, forbids it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise


def is_leftover(name: str) -> bool:
    """Whether a file or folder of this name was left by a kill while another was replaced."""
    return re.fullmatch(r"\..+\.[0-9a-f]{12}\.(new|old)", name) is not None


def _beside(path: Path, state: Literal["new", "old"]) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.{state}")


def _refused(path: Path, error: OSError) -> EnvironmentLacks:
    return EnvironmentLacks(f"cannot write {path}: {error.strerror or error}")
