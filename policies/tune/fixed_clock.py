"""The same locked clock for all GPUs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Options, Running
from wattkeeper.policies.registry import PolicyConfig


class FixedClock(Tune):
    """See `FixedClockConfig`."""

    def __init__(self, config: FixedClockConfig) -> None:
        self._clock_mhz = config.clock_mhz

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The fixed clock."""
        options, batch_size = running.start.options, running.configuration.batch_size
        limits = options.limits(batch_size)
        if options.pipeline is None:
            clocks = options.clocks(batch_size)
            if not clocks:
                return Knobs(limits[-1])
            clock_mhz = clocks[0] if self._clock_mhz == "lowest" else self._clock_mhz
            return Knobs(limits[-1], clock_mhz=clock_mhz)
        if self._clock_mhz == "lowest":
            return Knobs(limits[-1], plan=options.pipeline.lowest_plan)
        return Knobs(limits[-1], clock_mhz=self._clock_mhz)


class FixedClockConfig(PolicyConfig):
    """All GPUs run at the same clock, locked at the highest power limit.

    Jobs whose profile has no clocks run at the highest power limit.
    """

    kind: Literal["fixed-clock"] = "fixed-clock"
    policy = FixedClock
    plain = "one clock for all"
    sets_clocks: ClassVar[Literal["none", "plans", "single"]] = "single"
    clock_mhz: Annotated[int, Field(gt=0)] | Literal["lowest"] = Field(examples=[1200])
    """Clock of each GPU, MHz, measured at all batch sizes (of pipeline-parallel jobs: for all
    instructions); or `lowest`: that of each batch size or instruction."""

    def check(self, options: Options) -> None:
        """Check that the clock was measured."""
        for clocks in options.clocks_mhz:
            if self.clock_mhz != "lowest" and self.clock_mhz not in clocks:
                there = f"{', '.join(map(str, clocks))} MHz" if clocks else "none"
                raise PolicyError(
                    f"{self.kind}: a clock of {self.clock_mhz} MHz has no profile on "
                    f"{options.key} at every batch size; there is {there}",
                    self.point,
                )
        try:
            if options.pipeline is not None and self.clock_mhz != "lowest":
                options.pipeline.execute(None, self.clock_mhz)
        except PolicyError as error:
            raise PolicyError(f"{self.kind} on {options.key}: {error}", self.point) from None
