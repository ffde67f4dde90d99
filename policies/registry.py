"""Policies by decision point and name; see `parts` for how they are registered."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from wattkeeper.policies import points
from wattkeeper.policies.errors import InputError, PolicyError, Problem
from wattkeeper.policies.errors import Point as Point
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.parts import Part, find_part, parts, register
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.point import POINTS as POINTS
from wattkeeper.policies.points.views import Options, TrialKind
from wattkeeper.policies.suggestions import did_you_mean

for _module in pkgutil.iter_modules(points.__path__, f"{points.__name__}."):
    import_module(_module.name)  # which registers the decision points of the engine that has some


class PolicyConfig(Part):
    """Base of all policy configs."""

    point: ClassVar[Point]
    """The decision point; by default that of `policy`."""
    policy: ClassVar[type[Any]]
    """The policy's class; constructed with the config if that has settings."""
    plain: ClassVar[str] = ""
    """What it does, in a few plain words that fit into a sentence; empty where its name says it."""
    needs_foresight: ClassVar[bool] = False
    """Whether it reads profiles before they are measured: possible in a simulation only."""
    sets_power: ClassVar[bool] = False
    """Whether a `Configure` policy also chooses the power limit, so that `Tune` is not asked."""

    chooses_types: ClassVar[bool] = False
    """Whether a `Place` policy decides on which GPU type a job with a profile runs."""

    sets_parent: ClassVar[bool] = False
    """Whether a `Configure` policy also chooses the parent: it is asked for every job with a model,
    even if the job has no workload and thus no batch sizes."""

    limits_unprofiled: ClassVar[bool] = False
    """Whether a `Tune` policy also limits the power of jobs without a profile, for which a model of
    the GPU type says what that changes."""

    names_queues: ClassVar[bool] = False
    """Whether a `Select` policy reads the queues of jobs (`Job.queue`), which others do not see."""

    draws: ClassVar[bool] = False
    """Whether it draws at random (`Context.rng`), so that seeds may give other results; those of
    other distributions count as if they did."""

    sets_clocks: ClassVar[Literal["none", "plans", "single"]] = "none"
    """Whether a `Tune` policy only decides on clocks: plans of pipeline-parallel jobs, or a single
    clock, which other jobs can have, too."""

    moments: ClassVar[tuple[Moment, ...]] = START_MOMENTS
    """When a `Tune` policy is asked; a run pays for those that are named here."""

    rates_of: ClassVar[str] = ""
    """The training system that a `Replan` policy stands for, whose measured rates it trains at."""

    tunes: ClassVar[bool] = False
    """Whether a `Configure` policy decides at `Tune`, too, with the same state (`tuner`)."""

    composed: ClassVar[bool] = False
    """Whether it stands for a list of policies, and has no name in the registry."""

    @property
    def parts(self) -> tuple[PolicyConfig, ...]:
        """The policies that it is composed of; by default itself."""
        return (self,)

    @property
    def systems(self) -> tuple[str, ...]:
        """The training systems whose rates a `Replan` policy needs; it begins with the first."""
        return (self.rates_of,)

    @property
    def fewest_nodes(self) -> int:
        """The fewest nodes on which a `Replan` policy can train a job."""
        return 1

    @property
    def slices(self) -> bool:
        """Whether it asks for slices as a `Tune` policy."""
        return False

    @property
    def trial(self) -> TrialKind:
        """How a `Configure` policy asks for parents to be tried before one is chosen."""
        return "none"

    @property
    def sees_queue(self) -> bool:
        """Whether a `Configure` policy reads how many jobs wait (`Start.waiting`)."""
        return False

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that it reads.

        A `Tune` policy with the moment `signal` is asked whenever one of them has a new value.
        """
        return ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class under its kind, unless it has none of its own."""
        super().__pydantic_init_subclass__(**kwargs)
        if not getattr(cls, "point", ""):
            policy = getattr(cls, "policy", object)
            of_base = (name for name, point in POINTS.items() if issubclass(policy, point.base))
            cls.point = next(of_base, "")
        if cls.composed:
            return
        point, kind = cls.point, cls.model_fields["kind"].default
        if point not in POINTS or not isinstance(kind, str):
            name = f"{cls.__module__}.{cls.__qualname__}"
            raise PolicyError(
                f"{name} needs a decision point (`point`: {', '.join(POINTS)}) and a name (`kind`)"
            )
        register(point, f"{point} policies", cls)

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """Columns that every job must have, each with advice for jobs that lack it."""
        return {}

    def check(self, options: Options) -> None:
        """Check the config against the options of a workload before a run starts.

        Raises:
            PolicyError: If the config names a value that is not among the options.
        """

    def build(self) -> Any:
        """Build a policy with this config: a subclass of its decision point.

        Raises:
            PolicyError: If it takes other arguments than its config, if that has settings.
        """
        has_settings = len(type(self).model_fields) > 1
        arguments = (self,) if has_settings else ()
        try:
            return self.policy(*arguments)
        except TypeError:
            if _takes(self.policy, arguments):  # it fails by itself
                raise
            raise PolicyError(
                f"{self.kind!r} has {'settings' if has_settings else 'no settings'}, so "
                f"{self.policy.__name__} is constructed with "
                f"{'its config alone' if has_settings else 'no argument'}, which it does not take",
                self.point,
            ) from None


def _takes(make: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    """Whether something can be called with these arguments."""
    try:
        inspect.signature(make).bind(*arguments)
    except TypeError:
        return False
    return True


def build_policy(config: PolicyConfig) -> Any:
    """Build a policy from its config.

    Raises:
        PolicyError: If the result is not a policy of the config's decision point.
        PolicyFailed: If it cannot be built.
    """
    with explain_failures(config, config.build):
        policy = config.build()
    base = POINTS[config.point].base
    if not isinstance(policy, base):
        raise PolicyError(
            f"{config.kind!r} builds a {type(policy).__name__}, which is no subclass of "
            f"{base.__module__}.{base.__name__}",
            config.point,
        )
    if getattr(type(policy), config.point) is getattr(base, config.point):
        raise PolicyError(
            f"{config.kind!r} builds a {type(policy).__name__} without the method {config.point!r}",
            config.point,
        )
    return policy


def find_config(
    point: Point, chosen: str | PolicyConfig, settings: Mapping[str, Any] | None = None
) -> PolicyConfig:
    """The config of a policy.

    Args:
        point: The decision point.
        chosen: The policy's name, or the config itself.
        settings: Of a policy given by name.

    Raises:
        InputError: If there is no such policy, it is of another decision point, or it lacks or
            refuses a setting.
    """
    if isinstance(chosen, str):
        kind: type[PolicyConfig] | None = find_part(point, chosen)
        if kind is None:
            known, meant = ", ".join(policies(point)), did_you_mean(chosen, policies(point))
            raise InputError(f"no {point} policy {chosen!r}{meant}; there is {known}")
        try:
            chosen = kind.model_validate(settings or {})
        except ValidationError as error:
            named = f"the {point} policy {chosen!r}"
            if lacks := [
                str(each["loc"][0]) for each in error.errors() if each["type"] == "missing"
            ]:
                raise InputError(
                    f"{named} needs {', '.join(lacks)}: give its config, "
                    f"{kind.__module__}.{kind.__name__}({lacks[0]}=...)"
                ) from None
            raise InputError(
                [
                    Problem(f"{named}: {'.'.join(map(str, each['loc']))}: {each['msg']}")
                    for each in error.errors()
                ]
            ) from None
    if not isinstance(chosen, PolicyConfig):
        raise InputError(f"{point}: found {chosen!r}; allowed: a policy's name, or its config")
    if chosen.point != point:
        raise InputError(f"found {chosen.kind!r}, a {chosen.point} policy, as {point}")
    return chosen


def policies(point: Point) -> dict[str, type[PolicyConfig]]:
    """The config classes of a decision point by kind, in alphabetical order."""
    return parts(point)
