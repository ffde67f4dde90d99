"""The highest power limit."""

from typing import ClassVar, Literal

from wattkeeper.policies.protocols import Context, Knobs, Running, Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class MaxPower(Tune):
    """See `MaxPowerConfig`."""

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The highest limit."""
        return Knobs(running.start.options.limits(running.configuration.batch_size)[-1])


class MaxPowerConfig(PolicyConfig):
    """Every attempt runs at the highest power limit."""

    point: ClassVar[Point] = "tune"
    kind: Literal["max-power"] = "max-power"
    policy = MaxPower
