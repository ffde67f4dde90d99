"""Scores of all pairs of graphs in a folder, as a CSV file."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.models.graph_arrays import read_arrays


def write_scores(
    graphs: Path,
    matcher: str,
    out: Path,
    children: Sequence[str],
    progress: Callable[[int, int], None],
) -> int:
    """Write what a matcher says of every ordered pair, by child, then by parent, in file order.

    The file appears whole or not at all. Without names of children, they are all graphs. The
    progress gets the number of children that are done, and of all.

    Returns:
        Number of pairs.

    Raises:
        TraceError: If a graph cannot be read.
        InputError: If there is no such child.
        PolicyError: If there is no such matcher.
        EnvironmentLacks: If the file cannot be written, or the trace library, which holds the
            cache of graphs, has no place.
    """
    by = find_matcher(matcher)
    arrays = read_arrays(graphs, by, library_folder() / ".graphs")
    unknown = [name for name in children if name not in arrays]
    if unknown:
        raise InputError(
            f"no graph in {graphs} is called {', '.join(unknown)}; there are {', '.join(arrays)}"
        )
    wanted = list(dict.fromkeys(children)) or list(arrays)
    with replace_file(out) as made, made.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("parent", "child", "score", "score_over_own"))
        for done, child in enumerate(wanted):
            progress(done, len(wanted))
            own = by.own(arrays[child])
            for parent, theirs in arrays.items():
                score = by.score(theirs, arrays[child])
                writer.writerow((parent, child, score, score / own if own else ""))
    return len(wanted) * len(arrays)
