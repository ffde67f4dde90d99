"""Scores of all pairs of graphs in a folder, as a CSV file."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.scenarios.notebook.flat_rows import escape_formula
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
