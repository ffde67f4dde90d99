"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from wattkeeper.policies.errors import EnvironmentLacks


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Inside, a fresh folder to be filled; it takes the place of `folder` at the end.

    If anything fails, what was there before stays. A kill leaves the fresh one beside the place,
    or, between the two renames, what was there before; see `is_leftover`.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    made, old = _beside(folder, "new"), _beside(folder, "old")
    try:
        made.mkdir(parents=True)
        yield made
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise _refused(folder, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Inside, the name of a fresh file to be written; it takes the place of `path` at the end.

    If anything fails, what was there before stays. A kill leaves the fresh one beside the place;
    see `is_leftover`. Only writing belongs inside: what goes wrong there is said to be that.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    made = _beside(path, "new")
    try:
        yield made
        made.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            made.unlink()


def is_leftover(name: str) -> bool:
    """Whether a file or folder called so was left behind by a kill while another was replaced."""
    return re.fullmatch(r"\..+\.[0-9a-f]{12}\.(new|old)", name) is not None


def _beside(path: Path, state: Literal["new", "old"]) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.{state}")


def _refused(path: Path, error: OSError) -> EnvironmentLacks:
    return EnvironmentLacks(f"cannot write {path}: {error.strerror or error}")
