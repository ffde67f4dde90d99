"""The strategies of searches for architectures, by their sections in scenarios."""

from __future__ import annotations

from typing import Final

import numpy as np

from wattkeeper.scenarios.spec.sections.search import (
    ArchitectureSearch,
    BayesianMorphism,
    DrawnNetworks,
    GreedyOracle,
    RegularizedEvolution,
)
from wattkeeper.sim.search.architectures import FIRST, Architecture, draw_candidates
from wattkeeper.sim.search.bayesian import Bayesian
from wattkeeper.sim.search.evolution import Evolution
from wattkeeper.sim.search.greedy import Greedy
from wattkeeper.sim.search.network_space import InSpace
from wattkeeper.sim.search.random_search import DrawnTree, RandomSearch
from wattkeeper.sim.search.strategy import Choices, Strategy

SEEDS: Final = 1 << 32
"""Numpy's older generators take no larger seeds."""


def start_strategy(workload: ArchitectureSearch, seed: int) -> Strategy[Architecture]:
    """The strategy of a search, begun with a seed of 63 bits."""
    section, trials = workload.strategy, workload.models
    if isinstance(section, DrawnNetworks):
        return DrawnTree(draw_candidates(trials, np.random.default_rng(seed)))
    if isinstance(section, BayesianMorphism):
        return Bayesian(FIRST, seed, trials=trials, centred=section.centred)
    networks = section.space.networks()
    space = networks.space
    strategy: Strategy[Choices]
    if isinstance(section, RegularizedEvolution):
        strategy = Evolution(
            space,
            seed,
            population=section.population,
            sample=section.sample,
            probability=section.probability,
            trials=trials,
        )
    elif isinstance(section, GreedyOracle):
        strategy = Greedy(space, seed % SEEDS, trials=trials)
    else:
        strategy = RandomSearch(space, seed, trials=trials)
    return InSpace(strategy, networks)
