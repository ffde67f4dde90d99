"""Fits the work that a parent saves to recorded trainings, and says what it predicts of others.

``python -m benchmarks.warm_starts.fit [FOLDER]`` reads the trainings that are shipped beside it, or
those that `benchmarks.warm_starts.record` wrote into a folder. It prints the coefficients of
`wattkeeper.policies.matching.benefit` fitted to all of them, the error of a single training, and
what each way of choosing a parent would have saved, by family and on the mean over the families
whose parents have the child's head: of the recorded parents of a network the one that it prefers,
the expected saving fitted to the other families alone. Then the same of trials: the parents of the
largest expected saving are tried by successive halving, and what the losers cost is charged.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.warm_starts.families import CLASSES, FAMILIES
from benchmarks.warm_starts.pack import SHIPPED, Lines, read_folder, read_packed
from benchmarks.warm_starts.record import Networks
from wattkeeper.live.search import dataset
from wattkeeper.live.search.trial import FORWARD
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning.halving import halve
from wattkeeper.policies.matching.asbuilt import asbuilt
from wattkeeper.policies.matching.benefit import Coefficients
from wattkeeper.policies.matching.relation import Relation, relate
from wattkeeper.sim.results.statistics import interval

EVALUATION: Final = FORWARD * dataset.VALIDATION_SHARE / dataset.TRAIN_SHARE
"""Work of a forward pass over the validation samples, in epochs."""

TRIALS: Final = [(count, epochs) for count in (2, 3, 5) for epochs in (0, 1, 2)]
"""Numbers of parents that are tried, and their epochs in the first round."""

TIE: Final = 1e-6
"""Weight of the retained share, which decides between parents of equal coverage."""


class Warm(NamedTuple):
    """A training from a parent, beside that of the same network from scratch.

    Attributes:
        run: Family and seed.
        network: Name of the network.
        relation: Of the parent to it.
        similarity: By the published matcher.
        accuracy: The parent's over the best one of the run, less 1.
        is_origin: Whether the network is a mutation of the parent.
        parameters: Of the network.
        curve: Correct validation samples after each epoch, those of the initial weights first.
        scratch: Epochs times parameters from scratch.
        gain: Difference of test accuracies, in points.
    """

    run: tuple[str, int]
    network: str
    relation: Relation
    similarity: float
    accuracy: float
    is_origin: bool
    parameters: int
    curve: tuple[int, ...]
    scratch: float
    gain: float

    @property
    def work(self) -> float:
        """Epochs times parameters."""
        return float((len(self.curve) - 1) * self.parameters)

    @property
    def features(self) -> Coefficients:
        """What the coefficients are multiplied with."""
        of = self.relation
        lost = 1 - of.retained
        return Coefficients(of.coverage, of.keeps, lost, of.equal, self.accuracy, of.new_head)


def read(family: str, seed: int, lines: list[dict[str, Any]]) -> Iterator[Warm]:
    """The trainings of a run that had a parent."""
    scratch = {line["network"]: line for line in lines if line["parent"] is None}
    networks = Networks(family, seed, len(scratch))
    drawn = {network.name: network for network in networks.drawn}
    classes = networks.family.parent_classes
    children = {name: networks.trace(drawn[name]).graph for name in scratch}
    parents = children
    if classes != CLASSES:
        parents = {name: networks.trace(drawn[name], classes).graph for name in scratch}
    best = {name: max(line["curve"]) for name, line in scratch.items()}
    for line in lines:
        if line["parent"] is None:
            continue
        parent, child, alone = line["parent"], line["network"], scratch[line["network"]]
        # The accuracies of parents that tell other classes are not recorded.
        accuracy = best[parent] / max(best.values()) - 1 if classes == CLASSES else 0.0
        yield Warm(
            (family, seed),
            child,
            relate(parents[parent], children[child]),
            asbuilt(parents[parent], children[child]),
            accuracy,
            parent == line["mutated_from"],
            line["parameters"],
            tuple(line["curve"]),
            alone["epochs"] * alone["parameters"],
            100 * (line["test_accuracy"] - alone["test_accuracy"]),
        )


def fit(warm: list[Warm]) -> Coefficients:
    """Least squares of the saved share; weighed by the work from scratch, runs alike."""
    totals: dict[tuple[str, int], list[float]] = defaultdict(list)
    for each in warm:
        totals[each.run].append(each.scratch)
    weights = np.sqrt([each.scratch / np.mean(totals[each.run]) for each in warm])
    features = np.array([each.features for each in warm], dtype=float)
    saved = np.array([1 - each.work / each.scratch for each in warm])
    found, *_ = np.linalg.lstsq(features * weights[:, None], saved * weights, rcond=None)
    return Coefficients(*found.tolist())


def expect(fitted: Coefficients, warm: Warm) -> float:
    """The expected saving by some coefficients."""
    return float(np.dot(fitted, warm.features))


Chooser = Callable[[Warm], float]


def tried(parents: list[Warm], prefers: Chooser, count: int, epochs: int) -> tuple[Warm, float]:
    """What a trial of the preferred parents leaves, and its cost in epochs.

    Those that lose are charged with their epochs and the forward pass over the validation samples
    that compared the initial weights.
    """
    arms = sorted(parents, key=prefers, reverse=True)[:count]
    trained = [0] * len(arms)

    def train(arm: int, total: int) -> float:
        curve = arms[arm].curve
        trained[arm] = min(total, len(curve) - 1)
        return max(curve[: total + 1])

    best = halve(len(arms), epochs, train)
    return arms[best], sum(trained) - trained[best] + EVALUATION * (len(arms) - 1)


def chosen(
    warm: list[Warm], prefers: Chooser, count: int = 1, epochs: int = 0
) -> dict[tuple[str, int], tuple[float, float]]:
    """By run, the share of work that a choice saves, and the mean gain of accuracy in points.

    With a `count` above 1, that of a trial; see `tried`.
    """
    by_network: dict[tuple[tuple[str, int], str], list[Warm]] = defaultdict(list)
    for each in warm:
        by_network[each.run, each.network].append(each)
    picked: dict[tuple[str, int], list[tuple[Warm, float]]] = defaultdict(list)
    for (run, _), parents in by_network.items():
        picked[run].append(tried(parents, prefers, count, epochs))
    return {
        run: (
            1
            - sum(each.work + cost * each.parameters for each, cost in found)
            / sum(each.scratch for each, _ in found),
            float(np.mean([each.gain for each, _ in found])),
        )
        for run, found in picked.items()
    }


def describe(values: Floats) -> str:
    """A mean in per cent with its 95 % interval over seeds."""
    bounds = interval(values.tolist())
    shown = "" if bounds is None else f" [{bounds[0]:.1f}, {bounds[1]:.1f}]"
    return f"{values.mean():5.1f}{shown}"


def choosers(others: Coefficients) -> dict[str, Chooser]:
    """Ways of choosing a parent by name; `others`: coefficients of the other families."""
    return {
        "lineage": lambda each: each.is_origin,
        "modelkeeper-asbuilt": lambda each: each.similarity,
        "coverage": lambda each: each.relation.coverage + TIE * each.relation.retained,
        "expected saving": lambda each: expect(others, each),
        "best afterwards": lambda each: -each.work,
    }


def root_mean_square_error(fitted: Coefficients, warm: list[Warm]) -> float:
    """Of the saved share of a single training, weighed by its work from scratch."""
    errors = [1 - each.work / each.scratch - expect(fitted, each) for each in warm]
    return float(np.sqrt(np.average(np.square(errors), weights=[each.scratch for each in warm])))


def print_trials(warm: list[Warm]) -> None:
    """What trials save, and what the setting saves that is best on the other families."""
    heads = {each.run[0] for each in warm if FAMILIES[each.run[0]].parent_classes == CLASSES}
    saved: dict[tuple[int, int], dict[str, Floats]] = defaultdict(dict)
    for family in sorted({each.run[0] for each in warm}):
        own = [each for each in warm if each.run[0] == family]
        prefers = partial(expect, fit([each for each in warm if each.run[0] != family]))
        for count, epochs in [(1, 0), *TRIALS]:
            results = np.array([*chosen(own, prefers, count, epochs).values()])
            saved[count, epochs][family] = 100 * results[:, 0]
            if count > 1:
                more = describe(saved[count, epochs][family] - saved[1, 0][family])
                points = describe(results[:, 1])
                what = f"{family:6} {count} parents, {epochs} epochs"
                print(f"{what} save {more} points more, accuracy {points} points")
    for setting in TRIALS:
        total = np.mean([saved[setting][family].mean() for family in heads])
        print(f"mean   {setting[0]} parents, {setting[1]} epochs save {total:5.1f} %")
    for family in sorted(heads):
        best = max(
            saved, key=lambda at: np.mean([saved[at][name].mean() for name in heads - {family}])
        )
        more = describe(saved[best][family] - saved[1, 0][family])
        print(f"{family:6} {best[0]} parents, {best[1]} epochs, by the others: {more} points more")


def main(runs: Lines) -> None:
    warm = [each for run, lines in runs.items() for each in read(*run, lines)]
    fitted = fit(warm)
    print(f"{len(warm)} trainings:", *(f"{k} {v:.3f}" for k, v in fitted._asdict().items()))
    print(f"error of one: {100 * root_mean_square_error(fitted, warm):.0f} points")
    means: dict[str, list[float]] = defaultdict(list)
    for family in sorted({each.run[0] for each in warm}):
        own = [each for each in warm if each.run[0] == family]
        others = fit([each for each in warm if each.run[0] != family])
        for name, prefers in choosers(others).items():
            results = np.array([*chosen(own, prefers).values()])
            points = describe(results[:, 1])
            saved = describe(100 * results[:, 0])
            print(f"{family:6} {name:20} saves {saved} %, accuracy {points} points")
            if FAMILIES[family].parent_classes == CLASSES:
                means[name].append(100 * results[:, 0].mean())
    for name, values in means.items():
        print(f"mean   {name:20} saves {np.mean(values):5.1f} %")
    print_trials(warm)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(read_folder(Path(sys.argv[1])) if len(sys.argv) == 2 else read_packed(SHIPPED))
