"""The highest power limit."""

from typing import Literal

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig


class MaxPower(Tune):
    """See `MaxPowerConfig`."""

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The highest limit."""
        return Knobs(running.start.options.limits(running.configuration.batch_size)[-1])


class MaxPowerConfig(PolicyConfig):
    """Every attempt runs at the highest power limit."""

    kind: Literal["max-power"] = "max-power"
    policy = MaxPower
