"""The section of scenario files on searches for architectures."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from typing_extensions import override

from wattkeeper.scenarios.spec.sections.section import Section, WorkloadSection
from wattkeeper.scenarios.spec.sections.values import check_distinct
from wattkeeper.sim.search.architectures import FIRST, Architecture, draw_candidates
from wattkeeper.sim.search.bayesian import Bayesian
from wattkeeper.sim.search.evolution import Evolution
from wattkeeper.sim.search.greedy import Greedy
from wattkeeper.sim.search.network_space import InSpace, NetworkSpace
from wattkeeper.sim.search.random_search import DrawnTree, RandomSearch
from wattkeeper.sim.search.strategy import Choices, Space, Strategy

OLD_SEEDS: Final = 1 << 32
"""Numpy's older generators take no larger seeds."""

Width = Annotated[int, Field(ge=1, le=512)]
Kernel = Literal[1, 3, 5]


class SearchTraining(Section):
    """Rule by which Adam trains all networks of a search to convergence, parent or not."""

    batch_size: Annotated[int, Field(gt=0, le=1024)] = 64
    """Images per step."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-3
    """The default is that of Kingma and Ba (ICLR '15)."""
    patience: Annotated[int, Field(gt=0, le=1000)] = 5
    """Number of epochs without a better validation accuracy after which a training ends."""
    most_epochs: Annotated[int, Field(gt=0, le=100_000)] = 100
    """Largest number of epochs."""


class SearchSpace(Section):
    """Networks of convolutional stages, each with blocks of one kind."""

    stages: Annotated[int, Field(ge=1, le=3)] = 2
    """Number of stages; each but the first halves the image."""
    widths: Annotated[
        tuple[Width, ...], Field(min_length=1, max_length=32), AfterValidator(check_distinct)
    ] = (8, 12, 16, 24)
    """Channels of a stage."""
    blocks: Annotated[
        tuple[Annotated[int, Field(ge=1, le=8)], ...],
        Field(min_length=1),
        AfterValidator(check_distinct),
    ] = (1, 2)
    """Numbers of blocks in a stage."""
    kinds: Annotated[
        tuple[Literal["plain", "residual"], ...],
        Field(min_length=1),
        AfterValidator(check_distinct),
    ] = ("plain", "residual")
    """Kinds of blocks: a convolution, or two with a shortcut around them."""
    kernels: Annotated[tuple[Kernel, ...], Field(min_length=1), AfterValidator(check_distinct)] = (
        3,
        5,
    )
    """Kernels of the convolutions."""

    def networks(self) -> NetworkSpace:
        """The networks of the space."""
        return NetworkSpace(self.stages, self.widths, self.blocks, self.kinds, self.kernels)


class StrategySection(Section):
    """How a search proposes its networks."""

    has_origins: ClassVar[bool] = True
    kind: str

    @abstractmethod
    def start(self, trials: int, seed: int) -> Strategy[Architecture]:
        """The strategy, begun with a seed of 63 bits."""

    def find_misfit(self, trials: int) -> str:
        """Why it cannot propose so many networks; empty if it can."""
        return ""

    def explain_no_origins(self) -> str:
        """Why no network is derived from another; empty if some are."""
        return "" if self.has_origins else f"strategy: {self.kind} derives none"


class DrawnNetworks(StrategySection):
    """A random tree of mutations, drawn before the search."""

    kind: Literal["drawn"] = "drawn"

    @override
    def start(self, trials: int, seed: int) -> Strategy[Architecture]:
        return DrawnTree(draw_candidates(trials, np.random.default_rng(seed)))


class SpaceSearch(StrategySection):
    """A strategy that proposes networks of a space."""

    space: SearchSpace = SearchSpace()
    """The networks."""

    @abstractmethod
    def begin(self, space: Space, trials: int, seed: int) -> Strategy[Choices]:
        """The strategy over configurations of the space."""

    @override
    def start(self, trials: int, seed: int) -> Strategy[Architecture]:
        networks = self.space.networks()
        return InSpace(self.begin(networks.space, trials, seed), networks)

    @override
    def find_misfit(self, trials: int) -> str:
        return self.find_misfit_in(self.space.networks().space, trials)

    def find_misfit_in(self, space: Space, trials: int) -> str:
        """Why it cannot propose so many configurations of a space; empty if it can."""
        too_many = space.size < trials
        return f"models: the space has only {space.size} networks" if too_many else ""


class RandomDraws(SpaceSearch):
    """Draws networks of the space; none twice."""

    has_origins: ClassVar[bool] = False
    kind: Literal["random"]

    @override
    def begin(self, space: Space, trials: int, seed: int) -> Strategy[Choices]:
        return RandomSearch(space, seed, trials=trials)


class RegularizedEvolution(SpaceSearch):
    """Mutates the best of a sample of the latest networks (Real et al., AAAI '19, as in NNI)."""

    kind: Literal["evolution"]
    population: Annotated[int, Field(ge=1, le=10_000)] = 15
    """Number of latest networks of which parents are chosen; as many are drawn at first."""
    sample: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Number of them that are compared for a parent."""
    probability: Annotated[float, Field(gt=0, le=1)] = 0.15
    """With which each choice of a child is drawn anew; the published default is 0.05."""

    @override
    def begin(self, space: Space, trials: int, seed: int) -> Strategy[Choices]:
        return Evolution(
            space,
            seed,
            population=self.population,
            sample=self.sample,
            probability=self.probability,
            trials=trials,
        )

    @override
    def find_misfit_in(self, space: Space, trials: int) -> str:
        """Networks may come again, so that the size of the space does not matter."""
        too_large = "population" in self.model_fields_set and self.population > trials
        return "strategy.population: it cannot be larger than models" if too_large else ""

    @model_validator(mode="after")
    def _sample_is_of_the_population(self) -> Self:
        if self.sample > self.population:
            raise ValueError("sample: it cannot be larger than the population")
        return self


class GreedyOracle(SpaceSearch):
    """Draws parts of the best network so far anew (AutoKeras's greedy oracle)."""

    kind: Literal["greedy"]

    @override
    def begin(self, space: Space, trials: int, seed: int) -> Strategy[Choices]:
        return Greedy(space, seed % OLD_SEEDS, trials=trials)


class BayesianMorphism(StrategySection):
    """Walks over morphisms to the highest confidence bound (AutoKeras, KDD '19)."""

    kind: Literal["bayesian"]
    centred: bool = False
    """Whether bounds are those of a process with the mean of the accuracies, instead of 0 as
    published, which prefers networks that are far from all others."""

    @override
    def start(self, trials: int, seed: int) -> Strategy[Architecture]:
        return Bayesian(FIRST, seed, trials=trials, centred=self.centred)


SearchStrategy = Annotated[
    DrawnNetworks | RandomDraws | RegularizedEvolution | GreedyOracle | BayesianMorphism,
    Field(discriminator="kind"),
]


class TrainedNetworks(WorkloadSection):
    """Base of the sections on networks that are really trained, one after the other."""

    varies_clusters: ClassVar[bool] = False
    has_models: ClassVar[bool] = True
    training: SearchTraining = SearchTraining()
    """Rule by which all networks are trained."""

    @property
    @abstractmethod
    def plan(self) -> str:
        """Which networks are trained, as text."""

    @abstractmethod
    def start(self, seed: int) -> Strategy[Architecture]:
        """What proposes the networks, begun with a seed of 63 bits.

        Raises:
            InputError: If there are none with this seed.
        """

    @abstractmethod
    def explain_no_origins(self) -> str:
        """Why no network is derived from another; empty if some are."""


class ArchitectureSearch(TrainedNetworks):
    """A search for architectures; its networks are really trained, one after the other."""

    kind: Literal["search"]
    models: Annotated[int, Field(gt=0, le=10_000)]
    """Number of networks."""
    strategy: SearchStrategy = DrawnNetworks()
    """How the next network is proposed, from the validation accuracies of those before."""

    @property
    @override
    def plan(self) -> str:
        return self.model_dump_json(include={"models", "strategy"})

    @override
    def start(self, seed: int) -> Strategy[Architecture]:
        return self.strategy.start(self.models, seed)

    @override
    def explain_no_origins(self) -> str:
        return self.strategy.explain_no_origins()

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        if misfit := self.strategy.find_misfit(self.models):
            raise ValueError(misfit)
        return self
