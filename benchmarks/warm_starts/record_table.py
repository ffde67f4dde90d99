"""Records a table of trainings: all networks of a small space, from scratch and from three parents.

``python -m benchmarks.warm_starts.record_table FOLDER`` trains the 256 networks of `SPACE` on
digits, as the product's search does: first all from scratch, then all from their own trained
weights, which a search proposes again and again; then from the neighbour, a network with one other
choice, of which the product expects the most; then from another, drawn neighbour. All parents are
those that were trained from scratch. FOLDER/space-1.jsonl is as `benchmarks.warm_starts.record`
writes it, and FOLDER/graphs.json has the networks' graphs. What is there is not repeated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.warm_starts.families import list_space
from benchmarks.warm_starts.record import Networks, Recorder
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.policies.matching.benefit import expected_saving
from wattkeeper.policies.matching.relation import relate

FAMILY: Final = "space"
SEED: Final = 1


class TableRecorder(Recorder):
    """Trains all networks of the space, the same kind of start for all before the next kind."""

    def run(self) -> None:
        drawn = self.networks.drawn
        traced = [self.networks.trace(network) for network in drawn]
        graphs = {each.graph.name: json.loads(each.graph.to_json()) for each in traced}
        self.path.with_name("graphs.json").write_text(json.dumps(graphs), encoding="utf-8")
        for network, child in zip(drawn, traced, strict=True):
            self.train_from(network, child, None)
        rng = np.random.default_rng(self.networks.derive("parents"))
        chosen = [self.choose(child, traced, rng) for child in range(len(drawn))]
        for kind in zip(*chosen, strict=True):
            for network, child, parent in zip(drawn, traced, kind, strict=True):
                self.train_from(network, child, parent)

    def choose(
        self, child: int, traced: list[TracedModule], rng: np.random.Generator
    ) -> list[TracedModule]:
        """The network itself, its neighbour of the largest expected saving, and a drawn one."""
        near = [traced[place] for place in neighbours(child)]
        graph = traced[child].graph
        best = max(near, key=lambda parent: expected_saving(relate(parent.graph, graph)))
        others = [each for each in near if each is not best]
        return [traced[child], best, others[int(rng.integers(len(others)))]]


def neighbours(place: int) -> list[int]:
    """The networks of the space that differ in one choice, by their places in it."""
    listed = [choices for _, choices in list_space()]
    return [
        other
        for other, choices in enumerate(listed)
        if sum(one != two for one, two in zip(choices, listed[place], strict=True)) == 1
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    networks = Networks(FAMILY, SEED, len(list_space()))
    TableRecorder(networks, folder / f"{FAMILY}-{SEED}.jsonl").run()
