"""What a policy of a run may ask: the time, random streams, signals, the zoo and foresight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_failure, is_foreign
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.policy import ZooView
from wattkeeper.policies.points.views import Start
from wattkeeper.sim.kernel.clock import Clock

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.policies.registry import Point, PolicyConfig
    from wattkeeper.policies.signals import SignalView
    from wattkeeper.sim.kernel.signals import SignalSource


class PolicyContext:
    """What one policy may ask of the run: a `wattkeeper.policies.points.policy.Context`.

    Args:
        point: The policy's decision point.
        config: Its config.
        clock: The time.
        objective: What a job costs.
        zoo: Models to start from.
        stream_of: A new random stream by decision point and name (`RandomStreams.policy`).
        suffix: Added to the names of its random streams.
        foresight: The profile that an attempt will be replayed from; it is only asked for a policy
            that declares foresight. None: there is none.
        signals: The signals of the run, by name.

    Attributes:
        point: The policy's decision point.
        slices: Whether the policy may ask for slices.
        trial: How the policy may ask for parents to be tried.
        is_asked_later: Whether the policy is asked after the start of an attempt.
    """

    def __init__(
        self,
        point: Point,
        config: PolicyConfig,
        clock: Clock,
        objective: Objective,
        zoo: ZooView,
        stream_of: Callable[[Point, str], np.random.Generator],
        suffix: str,
        foresight: Callable[[Start], Profile] | None,
        signals: Mapping[str, SignalSource],
    ) -> None:
        self.objective = objective
        self.zoo = zoo
        self.point = point
        self.slices = config.slices
        self.trial = config.trial
        self.is_asked_later = not set(config.moments) <= set(START_MOMENTS)
        self._config = config
        self._clock = clock
        self._stream_of = stream_of
        self._suffix = suffix
        self._foresight = foresight
        self._sources = signals
        self._signals: dict[str, SignalView] = {}
        self._streams: dict[str, np.random.Generator] = {}

    @property
    def is_foreign(self) -> bool:
        """Whether the policy, or a part of it, is of another distribution."""
        return any(is_foreign(type(part)) for part in self._config.parts)

    @property
    def policy(self) -> str:
        """The policy as messages name it."""
        return f"the {self.point} policy {self._config.kind!r}"

    @property
    def now_s(self) -> float:
        """Time since the start of the run, s."""
        return self._clock.now_s

    def rng(self, name: str) -> np.random.Generator:
        """The policy's random stream of that name; equal names give the same stream."""
        if name not in self._streams:
            self._streams[name] = self._stream_of(self.point, name + self._suffix)
        return self._streams[name]

    def signal(self, name: str) -> SignalView:
        """A signal that the policy declares."""
        if name not in self._signals:
            if name not in self._config.signals:
                raise PolicyError(f"{self.policy} declares no signal {name!r}", self.point)
            if name not in self._sources:
                raise PolicyError(
                    f"{self.policy} reads {name!r}; there is no such signal here", self.point
                )
            self._signals[name] = self._sources[name].view(self._clock)
        return self._signals[name]

    def explain_failure(
        self, error: BaseException, method: Callable[..., Any], about: str
    ) -> BaseException:
        """The error to raise in place of one that a method of the policy raised.

        `about` names the job. See `wattkeeper.policies.failures.explain_failure`.
        """
        at = f" for {about}" if about else ""
        return explain_failure(self._config, error, method, f"{at} at {self.now_s:.12g} s")

    def foresight(self, start: Start) -> Profile:
        """The profile from which the attempt will be replayed."""
        if not self._config.needs_foresight or self._foresight is None:
            raise PolicyError(f"{self.policy} declares no foresight", self.point)
        return self._foresight(start)
