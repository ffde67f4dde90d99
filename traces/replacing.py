"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wattkeeper.policies.errors import EnvironmentLacks


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Inside, a fresh folder to be filled; it takes the place of `folder` at the end.

    If anything fails, what was there before stays. A kill between the two renames leaves it beside
    the place, as ``.NAME.*.old``.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    mark = uuid.uuid4().hex[:12]
    made, old = (folder.with_name(f".{folder.name}.{mark}.{state}") for state in ("new", "old"))
    try:
        made.mkdir(parents=True)
        yield made
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise EnvironmentLacks(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Inside, where to write a fresh file; it takes the place of `path` at the end.

    If anything fails, what was there before stays.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield made
        made.replace(path)
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            made.unlink(missing_ok=True)
