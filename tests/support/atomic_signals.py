"""Replaces a file and a folder with a signal at each call; a script of `signals`."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.signals import SIGNALS, attempt
from wattkeeper.traces.files.atomic import replace_file, replace_folder, settle


def content(path: Path) -> dict[str, str] | None:
    """The files at a place; None if nothing is there."""
    if not path.exists():
        return None
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(file.relative_to(path)): file.read_text() for file in files}


def fill_folder(path: Path, text: str) -> None:
    with replace_folder(path) as fresh:
        (fresh / "part").mkdir()
        for name in ("one", "part/two"):
            (fresh / name).write_text(text)


def fill_file(path: Path, text: str) -> None:
    with replace_file(path) as fresh:
        fresh.write_text(text)


def fill_cached(path: Path, text: str) -> None:
    """As the owner of a cache does, which settles its folder when it begins."""
    settle(path.parent)
    with replace_file(path, durable=False) as fresh:
        fresh.write_text(text)


def main(folder: str, what: str, first: bool, exchange: bool) -> list[dict[str, Any]]:
    """A signal at each call of a replacement; then it is settled, or there is another one.

    Args:
        folder: Where.
        what: `folder`, `file` or `cached`, a file of a cache.
        first: Whether nothing is there before.
        exchange: Whether the file system can exchange two names.
    """
    fill: Callable[[Path, str], None] = {
        "folder": fill_folder,
        "file": fill_file,
        "cached": fill_cached,
    }[what]
    root = Path(folder)
    made = []
    ctypes.CDLL(None).arm(0, 0, not exchange)
    for number in SIGNALS:
        at, ended = 0, False
        while not ended:
            at += 1
            home = root / f"{number.name}-{at}"
            settled = home.with_name(f"{home.name}-settled")
            path = home / "place"
            home.mkdir()
            if not first:
                fill(path, "old")
            outcome = attempt(partial(fill, path, "new"), at, number, exchange=exchange)
            ended = outcome.code == 0
            shutil.copytree(home, settled)
            settle(settled)
            found = {
                "signal": number.name,
                "at": at,
                "code": outcome.code,
                "there": content(path),
                "beside": listed(home),
                "settled": content(settled / "place"),
                "beside_settled": listed(settled),
            }
            fill(path, "next")
            made.append({**found, "next": content(path), "beside_next": listed(home)})
    return made


def listed(home: Path) -> list[str]:
    return sorted({path.name for path in home.iterdir()} - {"place"})
