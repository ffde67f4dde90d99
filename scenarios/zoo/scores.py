"""Scores of all pairs of graphs in a folder, as a CSV file."""

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import InputError, StoreError
from wattkeeper.policies.matching.matchers import Matcher, find_matcher
from wattkeeper.policies.matching.packing import pack, unpack
from wattkeeper.scenarios.notebook.flat_rows import escape_formula
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.private import (
    check_own_folder,
    make_private_folder,
    open_private,
    read_own_file,
)
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.models.graphs import check_new, graph_files, parse_graph, read_bytes

A = TypeVar("A", bound=tuple[Ints, ...])


def write_scores(
    graphs: Path,
    matcher: str,
    out: Path,
    children: Sequence[str],
    progress: Callable[[int, int], None],
) -> int:
    """Write the score of every ordered pair, by child, then by parent, in file order.

    The file appears whole or not at all. Without names of children, all graphs are children.
    `progress` is called with the number of finished children and of all.

    Returns:
        Number of pairs.

    Raises:
        TraceError: If a graph cannot be read.
        InputError: If there is no such child.
        PolicyError: If there is no such matcher.
        EnvironmentLacks: If the file cannot be written, or the trace library, which holds the
            cache of graphs, has no place.
    """
    scorer = find_matcher(matcher)
    arrays = read_arrays(graphs, scorer, library_folder() / ".graphs")
    unknown = [name for name in children if name not in arrays]
    if unknown:
        raise InputError(
            f"no graph in {graphs} is called {', '.join(unknown)}; there are {', '.join(arrays)}"
        )
    selected = list(dict.fromkeys(children)) or list(arrays)
    with replace_file(out) as fresh, fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("parent", "child", "score", "score_over_own"))
        for done, child in enumerate(selected):
            progress(done, len(selected))
            own = scorer.own(arrays[child])
            for parent, parent_arrays in arrays.items():
                score = scorer.score(parent_arrays, arrays[child])
                names = map(escape_formula, (parent, child))
                writer.writerow((*names, score, score / own if own else ""))
    return len(selected) * len(arrays)


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
