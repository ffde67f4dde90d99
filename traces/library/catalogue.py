"""Public traces that `wattkeeper traces fetch` knows by name.

``catalogue.json`` lists them; wattkeeper includes none of their data. A SHA-256 is listed only if
it is published: by the origin (Git LFS pointers, the README of clusterdata), by others who pinned
the same file, or by the file at a pinned commit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.suggestions import did_you_mean


class File(NamedTuple):
    """One file to download.

    Attributes:
        url: Its address.
        sha256: Digest (hex) of its bytes; None if unknown.
        size_bytes: Its size; None if unknown.
        members: For an archive (tar or zip), the ends of the paths of the members to import, each
            matching one member; empty if the file itself is imported.
    """

    url: str
    sha256: str | None = None
    size_bytes: int | None = None
    members: tuple[str, ...] = ()


class WellKnown(NamedTuple):
    """A public trace.

    Attributes:
        name: As written on the command line, and its name in the library.
        summary: One line.
        format: Import format that reads it.
        licence: SPDX name or what is known.
        page: Address of its description.
        files: Files to download.
        as_folder: Whether the format takes the folder of the files instead of the files.
    """

    name: str
    summary: str
    format: str
    licence: str
    page: str
    files: tuple[File, ...]
    as_folder: bool = False


_ALL: Final = TypeAdapter(tuple[WellKnown, ...]).validate_json(
    Path(__file__).with_suffix(".json").read_bytes()
)
WELL_KNOWN: Final[Mapping[str, WellKnown]] = {trace.name: trace for trace in _ALL}
"""All of them by name."""


def find_known(name: str) -> WellKnown:
    """The well-known trace of a name.

    Raises:
        InputError: If there is none; the message lists those that there are.
    """
    if name not in WELL_KNOWN:
        known = ", ".join(WELL_KNOWN)
        raise InputError(
            f"no well-known trace {name!r}{did_you_mean(name, WELL_KNOWN)}; there are {known}. "
            "Others: download them and use `wattkeeper traces import FORMAT PATH...`"
        )
    return WELL_KNOWN[name]


def listing() -> list[str]:
    """Lines that list all well-known traces: summary, licence, format; address, size, SHA-256."""
    lines = []
    for trace in WELL_KNOWN.values():
        lines.append(f"{trace.name}: {trace.summary}")
        lines.append(f"    format {trace.format}; licence: {trace.licence}; {trace.page}")
        for file in trace.files:
            size = "size unknown" if file.size_bytes is None else f"{file.size_bytes:,} bytes"
            lines.append(f"    {file.url}")
            lines.append(f"        {size}, sha256 {file.sha256 or 'unknown'}")
    return lines
