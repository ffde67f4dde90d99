"""A power limit that follows the price.

While electricity costs more than it did on average, jobs run at a lower power limit. The average
moves with the prices that were seen.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig


class PriceFollowing(Tune):
    """See `PriceFollowingConfig`."""

    def __init__(self, config: "PriceFollowingConfig") -> None:
        self.config = config
        # The state: the moving average, and the slot whose price came in last.
        self.average: float | None = None
        self.since_s: float | None = None

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """A power limit for an attempt that starts, or runs while the price changes."""
        price = ctx.signal("price")
        # Each running attempt is asked when the price changes: it counts once.
        if self.average is None:
            self.average, self.since_s = float(price.value), float(price.since_s)
        elif price.since_s != self.since_s:
            self.average += self.config.weight * (float(price.value) - self.average)
            self.since_s = float(price.since_s)
        limits = running.start.options.limits(running.configuration.batch_size)
        if price.value <= self.average:
            return Knobs(limits[-1])
        floor_w = self.config.share * limits[-1]
        return Knobs(next(limit_w for limit_w in limits if limit_w >= floor_w))

    def state_dict(self) -> dict[str, Any]:
        """What was learnt."""
        return {"average": self.average, "since_s": self.since_s}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state; an empty one is that of a new policy."""
        self.average, self.since_s = state.get("average"), state.get("since_s")


class PriceFollowingConfig(PolicyConfig):
    """The highest power limit while the price is up to its moving average, else a lower one."""

    kind: Literal["price-following"] = "price-following"
    policy = PriceFollowing
    # Asked at the start, after a profile, and whenever a signal that it reads has a new value.
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "signal")
    share: float = Field(default=0.6, gt=0, le=1)
    """Of the highest limit; while the price is high, the lowest limit from there on holds."""
    weight: float = Field(default=0.1, gt=0, le=1)
    """Of a new price in the moving average."""

    @property
    def signals(self) -> tuple[str, ...]:
        """The price: of `electricity`, or a signal of that name."""
        return ("price",)
