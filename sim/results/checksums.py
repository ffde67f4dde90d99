"""`SHA256SUMS` of a results folder: digests of its files, as `sha256sum --check` reads them."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.traces.files.digests import digest_file

SUMS: Final = "SHA256SUMS"
"""Name of the file."""

MOST_BYTES: Final = 1 << 26
"""Of the file: digests of some 700,000 points of a sweep."""

AGAIN: Final = "run the scenario again"


def write_sums(folder: Path, names: Collection[str]) -> None:
    """Write the digests of files in a folder, given their paths in it."""
    lines = [f"{digest_file(folder / name)}  {name}\n" for name in sorted(names)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, required: Collection[str], optional: Collection[str] = ()) -> None:
    """Check that the files of a folder are those that were written.

    Args:
        folder: The folder.
        required: Files that must be there, by their paths in the folder.
        optional: Files that have a digest if they are there.

    Raises:
        InputError: If `SHA256SUMS` or a file is missing, truncated or changed; with all of them.
    """
    stored = _read_sums(folder / SUMS)
    expected = {*required, *(name for name in optional if (folder / name).exists())}
    problems = [
        Problem(f"has no digest of {name}; {AGAIN}", str(folder / SUMS))
        for name in sorted(expected - stored.keys())
    ]
    problems += [
        Problem(f"names {name!r}, which is no file of these results; {AGAIN}", str(folder / SUMS))
        for name in sorted(stored.keys() - {*required, *optional})
    ]
    for name in sorted(stored.keys() & {*required, *optional}):
        path = folder / name
        if not path.is_file():
            state = "is no file" if path.exists() else "is missing"
            problems.append(Problem(f"{state}; {AGAIN}", str(path)))
        elif (digest := digest_file(path)) != stored[name]:
            text = f"its SHA-256 is {digest}, in {SUMS} it is {stored[name]}; {AGAIN}"
            problems.append(Problem(f"is truncated or was changed: {text}", str(path)))
    if problems:
        raise InputError(problems)


def _read_sums(path: Path) -> dict[str, str]:
    if not path.is_file():
        text = "is missing, so that the results cannot be checked"
        raise InputError(f"{text}; {AGAIN}", path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"has {size:,} bytes, more than {MOST_BYTES:,}; {AGAIN}", path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"is not UTF-8; {AGAIN}", path) from None
    rows = [re.fullmatch(r"([0-9a-f]{64})  (\S+)", line) for line in lines]
    wrong = [number for number, row in enumerate(rows, 1) if row is None]
    if wrong:
        text = f"is no SHA-256 with the name of a file; {AGAIN}"
        raise InputError(text, f"{path}, line {wrong[0]}")
    return {row[2]: row[1] for row in rows if row}
