"""The strategies propose what the published searches propose, and groups are the reference's."""

from __future__ import annotations

import heapq
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.carbon import read_rows
from wattkeeper.sim.search.architectures import Architecture, count_parameters, describe, parse
from wattkeeper.sim.search.bayesian import Bayesian
from wattkeeper.sim.search.ensembles import MemberGroup, group_by_number, group_by_share
from wattkeeper.sim.search.evolution import Evolution
from wattkeeper.sim.search.greedy import Greedy
from wattkeeper.sim.search.morphism import children, distance
from wattkeeper.sim.search.strategy import Space

NAMES = ("s1/width", "s1/kernel", "s2/width", "s2/kernel", "s2/depth", "head")

Trial = tuple[str, str, float, float, float]
"""Parent, configuration, start and end, s, and accuracy."""


@pytest.fixture
def search(shared: Path) -> Path:
    return shared / "reference/search"


@pytest.fixture
def ensemble(shared: Path) -> Path:
    return shared / "reference/ensemble"


def groups_of(rows: list[dict[str, str]], *columns: str):
    return groupby(rows, key=lambda row: tuple(row[column] for column in columns))


class Landscape:
    def __init__(self, folder: Path) -> None:
        rows = read_rows(folder / "landscape.csv")
        choices = {name: list(dict.fromkeys(row[name] for row in rows)) for name in NAMES}
        self.space = Space(choices)
        self.accuracy, self.seconds = (
            {tuple(row[name] for name in NAMES): float(row[column]) for row in rows}
            for column in ("accuracy", "seconds")
        )


def run_in_slots(strategy: Evolution, landscape: Landscape, slots: int) -> list[Trial]:
    now = 0.0
    running: list[tuple[float, int]] = []
    rows: list[Trial] = []
    while True:
        while len(running) < slots and (proposal := strategy.propose()) is not None:
            end = now + landscape.seconds[proposal.network]
            heapq.heappush(running, (end, proposal.trial))
            parent = "" if proposal.origin is None else str(proposal.origin)
            accuracy = landscape.accuracy[proposal.network]
            rows.append((parent, "|".join(proposal.network), now, end, accuracy))
        if not running:
            return rows
        now = running[0][0]
        while running and running[0][0] == now:
            _, trial = heapq.heappop(running)
            strategy.report(trial, rows[trial][-1])


def test_evolution(search: Path) -> None:
    landscape = Landscape(search)
    keys = ("seed", "population", "sample", "probability", "trials", "slots")
    for (seed, population, sample, probability, trials, slots), rows in groups_of(
        read_rows(search / "evolution.csv"), *keys
    ):
        strategy = Evolution(
            landscape.space,
            int(seed),
            population=int(population),
            sample=int(sample),
            probability=float(probability),
            trials=int(trials),
        )
        expected = [
            (
                row["parent"],
                row["config"],
                float(row["start_s"]),
                float(row["end_s"]),
                float(row["accuracy"]),
            )
            for row in rows
        ]
        assert run_in_slots(strategy, landscape, int(slots)) == expected


def test_greedy(search: Path) -> None:
    landscape = Landscape(search)
    small = Space({"a/x": "01", "a/y": "01", "b": "012"})
    for (seed,), found in groups_of(read_rows(search / "greedy.csv"), "seed"):
        rows = list(found)
        accuracy = {tuple(row["config"].split("|")): float(row["accuracy"]) for row in rows}
        space = small if seed.startswith("small") else landscape.space
        number = int(seed.removeprefix("small-"))
        strategy = Greedy(space, number, trials=60, restarts=False)
        proposed = []
        while (proposal := strategy.propose()) is not None:
            base = "" if proposal.origin is None else str(proposal.origin)
            proposed.append((base, strategy.node, "|".join(proposal.network)))
            if proposal.network not in accuracy:
                break
            strategy.report(proposal.trial, accuracy[proposal.network])
        expected = [(row["base"], row["node"], row["config"]) for row in rows]
        assert proposed[: len(expected)] == expected
        assert len(proposed) == len(expected)


def test_morphisms_and_distances(search: Path) -> None:
    for (text,), rows in groups_of(read_rows(search / "children.csv"), "architecture"):
        expected = [row["child"] for row in rows]
        assert [describe(child) for child in children(parse(text))] == expected
    for row in read_rows(search / "distances.csv"):
        assert distance(parse(row["a"]), parse(row["b"])) == pytest.approx(
            float(row["distance"]), abs=1e-9
        )


def test_bayesian(search: Path) -> None:
    for (seed, start), found in groups_of(read_rows(search / "bayesian.csv"), "seed", "start"):
        rows = list(found)
        strategy = Bayesian(parse(start), int(seed), trials=len(rows))
        for row in rows:
            proposal = strategy.propose()
            assert proposal is not None
            father = "" if proposal.origin is None else str(proposal.origin)
            assert (str(proposal.trial), father) == (row["trial"], row["father"])
            assert describe(proposal.network) == row["architecture"]
            assert count_parameters(proposal.network) == int(row["parameters"])
            strategy.report(proposal.trial, float(row["accuracy"]))
        assert strategy.propose() is None


def test_groups_and_cores(ensemble: Path) -> None:
    members: dict[str, dict[str, Architecture]] = defaultdict(dict)
    for row in read_rows(ensemble / "members.csv"):
        members[row["set"]][row["member"]] = parse(row["architecture"])
        assert count_parameters(parse(row["architecture"])) == int(row["parameters"])
    cores = defaultdict(list)
    for row in read_rows(ensemble / "cores.csv"):
        cores[row["set"], row["rule"], row["value"]].append(row)
    for (name, rule, value), found in groups_of(
        read_rows(ensemble / "clusters.csv"), "set", "rule", "value"
    ):
        rows = list(found)
        networks = list(members[name].values())
        groups: list[MemberGroup] | None
        if rule == "share":
            groups = group_by_share(networks, float(value))
        else:
            groups = group_by_number(networks, int(value))
        if groups is None:
            assert [row["member"] for row in rows] == ["impossible"]
            assert not any(row["core"] for row in cores[name, rule, value])
            continue
        names = list(members[name])
        listed = [(str(i), names[each]) for i, group in enumerate(groups) for each in group.members]
        assert listed == [(row["cluster"], row["member"]) for row in rows]
        expected = cores[name, rule, value]
        assert [describe(group.core) for group in groups] == [row["core"] for row in expected]
        for group, row in zip(groups, expected, strict=True):
            assert count_parameters(group.core) == int(row["parameters"])
            assert group.share == pytest.approx(float(row["least_share"]), abs=1e-9)
