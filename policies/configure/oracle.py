"""The configuration with the smallest expected cost, by foresight."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.profile import KnobChoice, Profile, optimum
from wattkeeper.policies.registry import PolicyConfig


class Oracle(Configure):
    """See `OracleConfig`."""

    def __init__(self, config: OracleConfig) -> None:
        self.knobs = config.knobs
        self._best: dict[tuple[str, float], tuple[Profile, Configuration]] = {}

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The optimum, computed once for each profile and share that a parent leaves."""
        key, profile = (start.options.key, start.work), ctx.foresight(start)
        if key not in self._best or self._best[key][0] is not profile:
            best = optimum(profile, ctx.objective, self.knobs, start.work)
            if best is None:
                raise PolicyError(
                    f"no configuration of {key[0]} ever reached its target", OracleConfig.point
                )
            configuration = Configuration(
                best.batch_size, best.power_limit_w, clock_mhz=best.clock_mhz
            )
            self._best[key] = profile, configuration
        return self._best[key][1]


class OracleConfig(PolicyConfig):
    """The configuration with the smallest expected cost, computed from the profile itself.

    This is the optimum of Zeus (NSDI '23), section 2.2 and figure 1; it is known in a simulation
    only. The power limit is set with it: `tune` is not asked.
    """

    needs_foresight: ClassVar[bool] = True
    sets_power: ClassVar[bool] = True
    kind: Literal["oracle"] = "oracle"
    policy = Oracle
    plain = "the best choice in hindsight"
    knobs: KnobChoice = "both"
    """What it chooses: the batch size at the largest power limit, the power limit (or locked clock,
    where the profile has some) at the default batch size, or both."""
