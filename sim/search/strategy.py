"""A strategy proposes the next network of a search from the accuracies of those that ended."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C")

Choices = tuple[str, ...]
"""A configuration: a choice for each name of a space, in its order."""


class Proposal(NamedTuple, Generic[C]):
    """A network to train next.

    Attributes:
        trial: Its number, from 0 in the order of proposals.
        network: A configuration or an architecture.
        origin: The trial that it was derived from; None if from none.
        label: What its name begins with.
    """

    trial: int
    network: C
    origin: int | None
    label: str


class Strategy(ABC, Generic[C]):
    """Proposes the networks of a search; those that are trained are called trials."""

    def __init__(self) -> None:
        self._proposed = 0

    @abstractmethod
    def propose(self) -> Proposal[C] | None:
        """The next network; None if there is none now.

        There is none before the next `report` where trials are under way, and never again else.
        """

    @abstractmethod
    def report(self, trial: int, accuracy: float | None) -> None:
        """Learn how a trial ended; None: it failed. Trials that end together come by number."""

    def _number(self, network: C, origin: int | None = None, label: str = "") -> Proposal[C]:
        trial = self._proposed
        self._proposed += 1
        return Proposal(trial, network, origin, label or f"{trial:03d}")


class NamedNetwork(NamedTuple, Generic[C]):
    """A proposed network, and the name of the one that it was derived from; None if from none."""

    name: str
    network: C
    origin: str | None


class NamedTrials(Generic[C]):
    """A strategy whose trials have names: the label of each, and its network in words.

    Args:
        strategy: The strategy.
        describe: A network in words.
    """

    def __init__(self, strategy: Strategy[C], describe: Callable[[C], str]) -> None:
        self._strategy, self._describe = strategy, describe
        self._names: list[str] = []
        self._trials: dict[str, int] = {}

    def propose(self) -> NamedNetwork[C] | None:
        """See `Strategy.propose`."""
        found = self._strategy.propose()
        if found is None:
            return None
        name = f"{found.label}-{self._describe(found.network)}"
        self._trials[name] = len(self._names)
        self._names.append(name)
        origin = None if found.origin is None else self._names[found.origin]
        return NamedNetwork(name, found.network, origin)

    def report(self, name: str, accuracy: float | None) -> None:
        """See `Strategy.report`."""
        self._strategy.report(self._trials[name], accuracy)


class Space:
    """Names with their choices, in order."""

    def __init__(self, choices: Mapping[str, Sequence[str]]) -> None:
        self.names = tuple(choices)
        self.choices = tuple(tuple(each) for each in choices.values())

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(map(len, self.choices))
