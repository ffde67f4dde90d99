"""Random streams by name, derived from the seed of a run."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

import numpy as np

from wattkeeper.policies.numerics.draws import WholeNumbers
from wattkeeper.policies.points.job import Job

SPAN = 2**64


class RandomStreams(Protocol):
    """The random streams of a run."""

    def policy(self, point: str, name: str) -> np.random.Generator:
        """A new generator by name, for policies of a decision point, or for what else draws."""

    def pick(self, job: Job, tries: int, choices: int) -> int:
        """Index (0 to `choices` - 1) of the recorded run that an attempt replays.

        `tries`: `Attempt.tries`.
        """


class NamedStreams:
    """Streams that depend on their name and the seed only.

    An attempt's draws do not depend on earlier decisions, so that variants can be compared pair
    by pair.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def policy(self, point: str, name: str) -> np.random.Generator:
        """A generator seeded by the digest of its name."""
        return np.random.default_rng([self.seed, self._digest(f"policy/{point}/{name}")])

    def pick(self, job: Job, tries: int, choices: int) -> int:
        """Draw by group, recurrence and try."""
        drawn = self._digest(f"run/{job.group_id}/{job.recurrence}/{tries}")
        return drawn * choices // SPAN

    def _digest(self, name: str) -> int:
        key = f"{self.seed}/{name}".encode()
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


class PublishedStreams:
    """The generators of the published Zeus simulator.

    A group has two generators of the same seed: one picks the recorded runs, the other is used by
    the bandit.

    Args:
        seed_of: The seed of a group by its id.
    """

    def __init__(self, seed_of: Callable[[str], int]) -> None:
        self._seed_of = seed_of
        self._runs: dict[str, WholeNumbers] = {}

    def policy(self, point: str, name: str) -> np.random.Generator:
        """The group's second generator."""
        return np.random.default_rng(self._seed_of(name))

    def pick(self, job: Job, tries: int, choices: int) -> int:
        """The next draw of the group's first generator.

        It equals `choice(choices, size=1, replace=False)`, which the published code asks for, in
        value and in what it consumes, in much less time.
        """
        numbers = self._runs.get(job.group_id)
        if numbers is None:
            rng = np.random.default_rng(self._seed_of(job.group_id))
            numbers = self._runs[job.group_id] = WholeNumbers(rng)
        return numbers.below(choices)


def checksum(group_id: str) -> int:
    """The seed of an overlapping group in the published Zeus simulator: Adler-32 of its id."""
    return zlib.adler32(group_id.encode())
