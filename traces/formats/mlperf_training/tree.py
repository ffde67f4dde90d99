"""The files of published results, in a folder or in an archive."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.limits import MOST_BYTES, MOST_JSON_BYTES, is_oversized
from wattkeeper.traces.readers.csvfile import describe_odd_byte, find_odd_byte, read_whole

LOG: Final = re.compile(r"(?:.*/)?([^/]+)/results/([^/]+)/([^/]+)/(result[^/]*)\.txt")
POWER: Final = re.compile(
    r"(?:.*/)?([^/]+)/results/([^/]+)/([^/]+)/power/([^/]+)/((?:node|sw)[^/]*)\.txt"
)
SYSTEM: Final = re.compile(r"(?:.*/)?([^/]+)/systems/([^/]+)\.json")
MOST_FILES: Final = 1_000_000
"""Of a folder or an archive, whatever they are."""


class RunPlace(NamedTuple):
    """Where a run lies.

    Attributes:
        submitter: Who ran it.
        system: Name of the system.
        benchmark: What was trained.
        log: Name of its log in the tree.
        power: Names of its power files in the tree.
    """

    submitter: str
    system: str
    benchmark: str
    log: str
    power: tuple[str, ...]


class Tree:
    """The files of published results that matter, by name; names begin with that of the folder.

    Args:
        names: All names.
        root: The folder or the archive.
        content: Bytes by name, of an archive; None: the files are read from the folder.
    """

    def __init__(
        self, names: list[str], root: Path, content: Mapping[str, bytes] | None = None
    ) -> None:
        self._root = root
        self._content = content
        self._digests: dict[str, str] = {}
        self.systems = {
            (match[1], match[2]): name for name in names if (match := SYSTEM.fullmatch(name))
        }
        power: dict[tuple[str | Any, ...], list[str]] = {}
        for name in names:
            if match := POWER.fullmatch(name):
                power.setdefault(match.groups()[:4], []).append(name)
        self.runs = [
            RunPlace(match[1], match[2], match[3], name, tuple(power.get(match.groups(), ())))
            for name in names
            if (match := LOG.fullmatch(name))
        ]

    def where(self, name: str) -> str:
        """A file as messages name it."""
        return str(self._root.parent / name if self._content is None else self._root / name)

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            TraceError: If it cannot be read or is too large.
        """
        if self._content is None:
            data = read_whole(self._root.parent / name, MOST_BYTES)
        else:
            data = self._content[name]
        self._digests[name] = sha256(data).hexdigest()
        return data

    def lines(self, name: str) -> list[str]:
        """The lines of a text file.

        Raises:
            TraceError: If it cannot be read, or is no text.
        """
        data = self.read(name)
        if (index := find_odd_byte(data)) is not None and b":::MLLOG" in _line_at(data, index):
            number = data.count(b"\n", 0, index) + 1
            raise TraceError(describe_odd_byte(data, index), f"{self.where(name)}, line {number}")
        return data.decode("utf-8", "replace").split("\n")

    def digests(self) -> Mapping[str, str]:
        """SHA-256 of the files that were read; of an archive, its own."""
        if self._content is None:
            digest = sha256("".join(sorted(self._digests.values())).encode()).hexdigest()
        else:
            digest = sha256(self._root.read_bytes()).hexdigest()
        return {self._root.name: digest}


def _line_at(data: bytes, index: int) -> bytes:
    end = data.find(b"\n", index)
    return data[data.rfind(b"\n", 0, index) + 1 : end if end >= 0 else len(data)]


@contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """Open a folder or a tar archive of published results.

    Raises:
        TraceError: If it is neither, is broken, or holds too much.
    """
    whole = path.absolute()
    if whole.is_dir():
        yield Tree(_list_folder(whole), whole)
        return
    if not whole.exists():
        raise TraceError("no such file or folder", path)
    content = _unpack(whole)
    yield Tree(sorted(content), path, content)


def _list_folder(root: Path) -> list[str]:
    names = []
    for count, found in enumerate(root.rglob("*")):
        if count >= MOST_FILES:
            raise TraceError(f"holds more than {MOST_FILES:,} files", root)
        name = found.relative_to(root.parent).as_posix()
        if _matters(name):
            names.append(name)
    return sorted(names)


def _matters(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (LOG, POWER, SYSTEM))


def _unpack(path: Path) -> dict[str, bytes]:
    """The files of an archive that matter, in memory."""
    content: dict[str, bytes] = {}
    stored, unpacked = path.stat().st_size, 0
    try:
        with tarfile.open(path) as tape:
            for count, member in enumerate(tape):
                unpacked += max(0, member.size)
                if is_oversized(unpacked, stored) or count >= MOST_FILES:
                    raise TraceError("decompresses to more than its size allows", path)
                name = f"{path.name}/{member.name.removeprefix('./')}"
                if not member.isreg() or not _matters(name):
                    continue
                stream = tape.extractfile(member)
                content[name] = b"" if stream is None else stream.read(MOST_BYTES)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise TraceError(f"is no folder and no tar archive: {reason}", path) from error
    return content


MOST_SYSTEM_BYTES: Final = MOST_JSON_BYTES
"""Of a description of a system."""
