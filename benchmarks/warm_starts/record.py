"""Records small trainings from scratch and from several parents each.

``python -m benchmarks.warm_starts.record FAMILY SEED FOLDER [NETWORKS]`` draws networks of a family
(`conv`: the product's search on digits; `heads`: the same, whose parents tell five classes; `vit`:
vision transformers on digits; `text`: encoders that tell from 24 words of Python's standard library
which package they are of), each a mutation of an earlier one, trains each of them from scratch, and
again from up to five of the earlier ones: the one it is a mutation of, the choices of three
measures of similarity, and a random one; in `heads`, also from its own architecture.
FOLDER/FAMILY-SEED.jsonl has a line for each training: `curve` is the number of correct validation
samples after each epoch, that of the initial weights first. What is there is not repeated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from benchmarks.warm_starts.families import CLASSES, FAMILIES, Network
from wattkeeper.live.search.processor import find_processor
from wattkeeper.live.search.search import derive_seed
from wattkeeper.live.search.trainer import NetworkTraining, TrainingResult, TrainingRule
from wattkeeper.live.weight_transfer.model_graph import TracedModule, trace
from wattkeeper.live.weight_transfer.report import FROM_PARENT, TransferReport
from wattkeeper.live.weight_transfer.transfer import grow
from wattkeeper.policies.matching.asbuilt import asbuilt
from wattkeeper.policies.matching.choice import warm_factor
from wattkeeper.policies.matching.relation import relate

RULE: Final = TrainingRule(batch_size=64, learning_rate=0.001, patience=5, most_epochs=100)
NETWORKS: Final = 60


class Networks:
    """The networks of a family with a seed, and their graphs."""

    def __init__(self, family: str, seed: int, count: int) -> None:
        self.family, self.seed = FAMILIES[family], seed
        self.drawn = self.family.draw(count, np.random.default_rng(self.derive("networks")))

    def derive(self, name: str) -> int:
        return derive_seed(self.seed, name)

    def build(self, network: Network, classes: int = CLASSES) -> nn.Module:
        torch.manual_seed(self.derive(f"weights/{network.name}"))
        return self.family.build(network.architecture, classes)

    def trace(self, network: Network, classes: int = CLASSES) -> TracedModule:
        return trace(self.build(network, classes), (self.family.inputs,), network.name)


class Recorder:
    """Trains the networks of a family with a seed."""

    def __init__(self, networks: Networks, path: Path) -> None:
        self.networks, self.path, family = networks, path, networks.family
        self.data = family.load(np.random.default_rng(networks.derive("split")))
        self.parent_data = family.parent_data(self.data)
        self.has_heads = family.parent_classes != CLASSES
        self.weights = path.with_suffix(".weights")
        self.weights.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
        self.done = {(line["network"], line["parent"]) for line in map(json.loads, lines)}
        self.processor = find_processor("CPU")

    def run(self) -> None:
        before: list[TracedModule] = []
        rng = np.random.default_rng(self.networks.derive("parents"))
        for network in self.networks.drawn:
            child = self.networks.trace(network)
            self.train_from(network, child, None)
            parent = child
            if self.has_heads:
                parent = self.networks.trace(network, self.networks.family.parent_classes)
                self.train_parent(network)
                before.append(parent)
            for index in self.parents(network, child, before, rng):
                self.train_from(network, child, before[index])
            if not self.has_heads:
                before.append(parent)

    def parents(
        self,
        network: Network,
        child: TracedModule,
        before: Sequence[TracedModule],
        rng: np.random.Generator,
    ) -> list[int]:
        if not before:
            return []
        graphs = [each.graph for each in before]
        places = range(len(graphs))
        both = [relate(graph, child.graph) for graph in graphs]
        chosen = [
            max(places, key=lambda at: (both[at].coverage, both[at].retained)),
            max(places, key=lambda at: (both[at].retained, both[at].coverage)),
            max(places, key=lambda at: asbuilt(graphs[at], child.graph)),
            int(rng.integers(len(graphs))),
        ]
        if network.mutated_from is not None:
            names = [graph.name for graph in graphs]
            chosen.insert(0, names.index(network.mutated_from))
        return list(dict.fromkeys([*([len(graphs) - 1] if self.has_heads else []), *chosen]))

    def stored(self, name: str) -> Path:
        return self.weights / f"{name}.pt"

    def train_parent(self, network: Network) -> None:
        """Train a network with the classes of parents; only its weights are kept."""
        if not self.stored(network.name).exists():
            net = self.networks.build(network, self.networks.family.parent_classes)
            order = self.networks.derive(f"order/{network.name}")
            data = self.parent_data
            NetworkTraining(net, data, RULE, order, lambda _: 1.0, self.processor).finish()
            torch.save(net.state_dict(), self.stored(network.name))

    def train_from(
        self, network: Network, child: TracedModule, parent: TracedModule | None
    ) -> None:
        is_stored = parent is not None or self.has_heads or self.stored(network.name).exists()
        name = None if parent is None else parent.graph.name
        if (network.name, name) in self.done and is_stored:
            return
        net, report, matched, tensors = self.networks.build(network), None, 0, 1
        if parent is not None:
            parent.module.load_state_dict(torch.load(self.stored(parent.graph.name)))
            report = grow(parent, replace(child, module=net))
            filled = [each for each in report.tensors if each.status in FROM_PARENT]
            matched = len({each.source for each in filled if each.trained})
            tensors = len(list(parent.module.parameters()))

        def factor(epoch: int) -> float:
            return 1.0 if parent is None else warm_factor(matched, tensors, epoch)

        order = self.networks.derive(f"order/{network.name}")
        result = NetworkTraining(net, self.data, RULE, order, factor, self.processor).finish()
        if parent is None and not self.has_heads:
            torch.save(net.state_dict(), self.stored(network.name))
        line = {
            "network": network.name,
            "parent": name,
            "mutated_from": network.mutated_from,
            "parameters": sum(each.numel() for each in net.parameters()),
        }
        self.write(line | self.measured(result, report))
        self.done.add((network.name, name))

    def measured(self, result: TrainingResult, report: TransferReport | None) -> dict[str, Any]:
        samples = len(self.data.validation.labels)
        return {
            "coverage": 0.0 if report is None else report.coverage,
            "kept": "nothing" if report is None else report.kept,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "curve": [round(each * samples) for each in result.curve],
            "validation": samples,
            "test_accuracy": result.test_accuracy,
            "cpu_s": round(result.reading.time_s, 3),
        }

    def write(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    family, number, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    count = int(sys.argv[4]) if len(sys.argv) > 4 else NETWORKS
    folder.mkdir(parents=True, exist_ok=True)
    Recorder(Networks(family, number, count), folder / f"{family}-{number}.jsonl").run()
