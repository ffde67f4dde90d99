"""The results folder of a run or of a sweep, and the folder of its unfinished work."""

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow.parquet as pq

from wattkeeper.policies.errors import InputError
from wattkeeper.sim.results.checksums import SUMS, write_sums
from wattkeeper.sim.results.indented import indent_json
from wattkeeper.sim.results.parquet import write_tables
from wattkeeper.sim.results.run_result import ResultKind, RunResult
from wattkeeper.sim.results.summary import metric_values
from wattkeeper.traces.files.atomic import check_place, is_leftover, replace_folder, resolve, settle

SWEEP: Final = "sweep.json"
"""File that marks the results folder of a sweep: its axes and its points."""


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds the results of a sweep."""
    restore_folder(folder)
    return (folder / SWEEP).is_file()


def restore_folder(folder: Path) -> None:
    """Restore a results folder whose replacement was killed half-way."""
    if not folder.exists():
        whole = resolve(folder)
        settle(whole.parent, whole.name)


def work_folder(results: Path, what: Literal["live", "sweep", "trainings"]) -> Path:
    """The folder beside the results that keeps unfinished work, to resume after an interruption."""
    whole = resolve(results)
    return whole.with_name(f"{whole.name}.{what}")


UNCHECKED: Final = {SUMS, "report.html", "timeline.json.gz"}
"""Files of a run without a digest in `SHA256SUMS`."""

PAGE_HEAD = 1 << 12
"""Bytes at the beginning of a page that say what generated it."""


def write_results(
    folder: Path,
    results: Sequence[RunResult],
    summary: str,
    manifest: Mapping[str, Any],
    page: str = "",
    *,
    durable: bool = True,
) -> None:
    """Write the results folder: beside it first, then renamed; what is there is replaced.

    Args:
        folder: The folder.
        results: All runs.
        summary: Text of `summary.json`.
        manifest: Content of `manifest.json`.
        page: Text of `report.html`; empty: there is none.
        durable: Whether it survives a power failure; see `replace_folder`.
    """
    with replace_folder(resolve(folder), durable=durable) as fresh:
        for name, whole in results[0].kind.tables.items():
            tables = [result.tables[name] for result in results if name in result.tables]
            if tables:
                write_tables(fresh / f"{name}.parquet", whole, tables)
        pq.write_table(metric_values(results), fresh / "metrics.parquet", compression="zstd")
        (fresh / "summary.json").write_text(summary, encoding="utf-8")
        (fresh / "manifest.json").write_text(to_json(manifest), encoding="utf-8")
        write_sums(fresh, [path.name for path in fresh.iterdir()])
        if page:
            (fresh / "report.html").write_text(page, encoding="utf-8", newline="\n")


def check_folder(folder: Path, kind: ResultKind, *, sweep: bool = False) -> None:
    """Refuse a results folder that cannot be made, or would lose something else.

    Args:
        folder: Where results are to be stored.
        kind: What they consist of.
        sweep: Whether they are of a sweep, which takes no run's place, nor does a run take its.

    Raises:
        InputError: If it holds anything but results of that kind, lies in a file, or is the root
            of a file system.
        EnvironmentLacks: If the file system refuses it.
    """
    whole = check_possible(folder)
    if not whole.exists():
        return
    strange = _find_strange(whole, {*kind.files, *UNCHECKED, SWEEP})
    if strange:
        raise InputError(
            f"{folder} holds {strange!r}, which is no result of wattkeeper: name another "
            "folder (--out)"
        )
    other, held = ("manifest.json", "run") if sweep else (SWEEP, "sweep")
    if (whole / other).exists():
        raise InputError(f"{folder} holds the results of a {held}: name another folder (--out)")


def check_possible(folder: Path) -> Path:
    """Refuse a folder that cannot be made or replaced, whatever it holds.

    Returns:
        Its absolute path.

    Raises:
        InputError: If it lies in a file, or is a file or the root of a file system.
        EnvironmentLacks: If the file system refuses it.
    """
    whole = resolve(folder)
    if whole.is_mount():
        text = f"{folder} is the root of a file system: name a folder in it (--out)"
        raise InputError(text)
    parent = next(path for path in whole.parents if path.exists())
    if not parent.is_dir():
        raise InputError(f"{parent} is a file: name another folder (--out)")
    check_place(whole)
    if whole.exists() and not whole.is_dir():
        raise InputError(f"{folder} is a file: name another folder (--out)")
    return whole


def _find_strange(folder: Path, files: Collection[str], within: str = "") -> str:
    """An entry of a folder that is none of these files of a run; empty if there is none.

    Without a manifest of wattkeeper, or its `sweep.json`, that is any entry.
    """
    entries = sorted(path for path in folder.iterdir() if not is_leftover(path.name))
    marks = [mark for mark in (SWEEP, "manifest.json") if _is_mark(folder / mark)]
    for path in entries:
        name = within + path.name
        if path.name == "points" and marks == [SWEEP] and path.is_dir():
            for point in sorted(path.iterdir()):
                below = f"{name}/{point.name}"
                if strange := _find_strange(point, files, f"{below}/") if point.is_dir() else below:
                    return strange
        elif not (marks and path.is_file() and path.name in files and _may_be_page(path)):
            return name
    return ""


def _is_mark(path: Path) -> bool:
    """Whether a file is a manifest or a `sweep.json`."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"scenario", "versions"} <= content.keys()


def _may_be_page(path: Path) -> bool:
    """Whether a file is a page of wattkeeper, unless it has another name than a page's."""
    if path.name != "report.html":
        return True
    with path.open("rb") as file:
        return b'<meta name="generator" content="wattkeeper">' in file.read(PAGE_HEAD)


def to_json(content: Mapping[str, Any]) -> str:
    """JSON as result files hold it."""
    return indent_json(content) + "\n"


def digest_results(results: Sequence[RunResult], summary: str) -> str:
    """SHA-256 of all result tables and of `summary.json`, whatever library wrote the tables."""
    state = sha256()
    for result in results:
        state.update(result.digest.encode())
    state.update(summary.encode())
    return state.hexdigest()
