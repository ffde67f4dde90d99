"""The best configuration in expectation, known beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.profile import Expected, Objective, Profile, expectations
from wattkeeper.policies.protocols import Configuration, Context, Start
from wattkeeper.policies.registry import Point, Policy, PolicyConfig

Turned = Literal["both", "batch-size", "power-limit"]


class OracleConfig(PolicyConfig):
    """The configuration of the smallest expected cost, from the profile itself.

    This is the optimum of Zeus (NSDI '23), section 2.2 and figure 1; only a simulation can know it.

    Attributes:
        knobs: What it may turn: the batch size at the largest power limit, the power limit at the
            default batch size, or both.
    """

    point: ClassVar[Point] = "configure"
    needs_foresight: ClassVar[bool] = True
    kind: Literal["oracle"] = "oracle"
    knobs: Turned = "both"

    def build(self) -> Oracle:
        """A new policy."""
        return Oracle(self.knobs)


def optimum(profile: Profile, objective: Objective, knobs: Turned = "both") -> Expected:
    """The expectation of the cheapest configuration; ties go to the smaller one.

    Raises:
        PolicyError: If no configuration ever reached the target.
    """
    candidates: Iterable[Expected] = expectations(profile, objective)
    if knobs == "power-limit":
        candidates = (x for x in candidates if x.batch_size == profile.default_batch_size)
    elif knobs == "batch-size":
        curves = profile.curves
        candidates = (x for x in candidates if x.power_limit_w == curves[x.batch_size].max_limit_w)
    best = min(candidates, key=lambda expected: expected.cost, default=None)
    if best is None:
        raise PolicyError(
            f"the oracle finds no configuration of {profile.workload} on {profile.gpu_type} "
            f"that ever reached the target {profile.target:g}"
        )
    return best


class Oracle(Policy):
    """See `OracleConfig`."""

    def __init__(self, knobs: Turned) -> None:
        self.knobs: Turned = knobs
        self._best: dict[str, Configuration] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The optimum, looked up once a workload and GPU type."""
        key = start.options.key
        if key not in self._best:
            best = optimum(ctx.foresight(start), ctx.objective, self.knobs)
            self._best[key] = Configuration(best.batch_size, best.power_limit_w)
        return self._best[key]
