"""Graphs as the arrays that a matcher runs over, kept beside the trace library by their content."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar

from wattkeeper.policies.matching.graph import Ints
from wattkeeper.policies.matching.matchers import Matcher
from wattkeeper.policies.matching.packing import pack, unpack
from wattkeeper.traces.library import store
from wattkeeper.traces.models.graphs import check_new, graph_files, parse_graph, read_bytes

A = TypeVar("A", bound=tuple[Ints, ...])

FOLDER: Final = ".graphs"
"""In the trace library."""


def read_arrays(path: Path, matcher: Matcher[A]) -> dict[str, A]:
    """The graphs of a folder, or of one file, as a matcher takes them, by name of the model.

    What was read before comes from a cache: it is found by the content of the graph's file, checked
    by a checksum, and made again if it is damaged. A cache that cannot be written is done without.

    Raises:
        TraceError: If there is none, one cannot be read, or two models have one name.
        EnvironmentLacks: If no place for the cache is known.
    """
    found: dict[str, A] = {}
    for file in graph_files(path):
        name, arrays = _arrays(file, matcher)
        check_new(name, found, file)
        found[name] = arrays
    return found


def _arrays(file: Path, matcher: Matcher[A]) -> tuple[str, A]:
    data = read_bytes(file)
    key = blake2b(data, digest_size=16).hexdigest()
    cached = store.root() / FOLDER / f"{key}.{matcher.layout.__name__}"
    try:
        arrays = unpack(matcher.layout, cached.read_bytes())
    except OSError:
        arrays = None
    if arrays is not None:
        return _name(file, data), arrays
    graph = parse_graph(file.stem, data, str(file))
    arrays = matcher.arrays(graph)
    _keep(cached, pack(arrays))
    return graph.name, arrays


def _name(file: Path, data: bytes) -> str:
    # What is in the cache was a graph when it was read.
    found = json.loads(data)
    return str(found["model"]) if isinstance(found, dict) else file.stem


def _keep(path: Path, data: bytes) -> None:
    mine = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mine.write_bytes(data)
        mine.replace(path)
    except OSError:
        mine.unlink(missing_ok=True)
