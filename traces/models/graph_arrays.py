"""Graphs as the arrays that a matcher runs over, cached by the content of their files."""

import json
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import StoreError
from wattkeeper.policies.matching.matchers import Matcher
from wattkeeper.policies.matching.packing import pack, unpack
from wattkeeper.traces.files.private import (
    check_own_folder,
    make_private_folder,
    open_private,
    read_own_file,
)
from wattkeeper.traces.models.graphs import check_new, graph_files, parse_graph, read_bytes

A = TypeVar("A", bound=tuple[Ints, ...])


def read_arrays(path: Path, matcher: Matcher[A, Any], cache: Path) -> dict[str, A]:
    """Read the graphs of a folder, or of one file, as a matcher's arrays, by name of the model.

    `cache` is a folder, made if it is missing. An entry is looked up by the content of the graph's
    file and verified by its checksum; a damaged one is computed again. A cache that cannot be
    written, or is another user's, is not used.

    Raises:
        TraceError: If there is no graph, one cannot be read, or two models have the same name.
    """
    arrays_by_model: dict[str, A] = {}
    for file in graph_files(path):
        name, arrays = _read_one(file, matcher, cache)
        check_new(name, arrays_by_model, file)
        arrays_by_model[name] = arrays
    return arrays_by_model


def _read_one(file: Path, matcher: Matcher[A, Any], cache: Path) -> tuple[str, A]:
    data = read_bytes(file)
    key = blake2b(data, digest_size=16).hexdigest()
    cached = cache / f"{key}.{matcher.layout.__name__}"
    try:
        check_own_folder(cache)
        arrays = unpack(matcher.layout, read_own_file(cached))
    except (OSError, StoreError):
        arrays = None
    if arrays is not None:
        # A cached file was a valid graph when it was first read: it need not be validated again.
        document = json.loads(data)
        return str(document["model"]) if isinstance(document, dict) else file.stem, arrays
    graph = parse_graph(file.stem, data, str(file))
    arrays = matcher.arrays(graph)
    with suppress(OSError, StoreError):
        make_private_folder(cache)
        # Without `replace_file`: the checksum reveals a file that was cut short, and a kill leaves
        # nothing beside it that a process would have to settle.
        with open(cached, "wb", opener=open_private) as entry:
            entry.write(pack(arrays))
    return graph.name, arrays
