"""The cheapest power limit of the batch size, by foresight."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig


class LimitOracle(Tune):
    """See `LimitOracleConfig`."""

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The limit of least cost of an epoch; a tie goes to the lower one."""
        profile = ctx.foresight(running.start)
        curve = profile.curves[running.configuration.batch_size]
        most_w = profile.max_power_w * profile.gpus
        return Knobs(curve.cheapest_epoch(ctx.objective, most_w)[1])


class LimitOracleConfig(PolicyConfig):
    """The power limit at which an epoch of the batch size costs least, from the profile itself.

    With it, `configure` is judged without what measuring limits takes. It is known in a simulation
    only.
    """

    needs_foresight: ClassVar[bool] = True
    kind: Literal["oracle"] = "oracle"
    policy = LimitOracle
    plain = "the best limit in hindsight"
