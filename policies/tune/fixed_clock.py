"""One clock for all instructions of pipeline-parallel jobs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import Context, Knobs, Options, Running, Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class FixedClock(Tune):
    """See `FixedClockConfig`."""

    def __init__(self, config: FixedClockConfig) -> None:
        self._clock_mhz = config.clock_mhz

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The fixed clock."""
        limits = running.start.options.limits(running.configuration.batch_size)
        if running.start.options.pipeline is None:
            return Knobs(limits[-1])
        if self._clock_mhz == "lowest":
            return Knobs(limits[-1], plan=running.start.options.pipeline.lowest_plan)
        return Knobs(limits[-1], clock_mhz=self._clock_mhz)


class FixedClockConfig(PolicyConfig):
    """All GPUs of pipeline-parallel jobs run at the same clock, or each instruction at its lowest.

    Other jobs run at the highest power limit.
    """

    point: ClassVar[Point] = "tune"
    kind: Literal["fixed-clock"] = "fixed-clock"
    policy = FixedClock
    sets_clocks: ClassVar[bool] = True
    clock_mhz: Annotated[int, Field(gt=0)] | Literal["lowest"] = Field(examples=[1200])
    """Clock of each GPU, MHz, measured for all instructions; or `lowest`: that of each
    instruction."""

    def check(self, options: Options) -> None:
        """Check that the clock was measured."""
        try:
            if options.pipeline is not None and self.clock_mhz != "lowest":
                options.pipeline.execute(None, self.clock_mhz)
        except PolicyError as error:
            raise PolicyError(f"{self.kind} on {options.key}: {error}", self.point) from None
