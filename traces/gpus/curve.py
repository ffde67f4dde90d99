"""Power and speed of a job that nobody profiled, against the power limit of its GPU.

A job alternates between phases that draw its peak power and phases that draw the base power, which
a held GPU draws whatever its clocks. A limit below the peak slows the clock of the first phases and
leaves the others as they are. docs/power-model.md has formulas, sources and errors.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

LEAST_SHARE: Final = 0.07
"""Share of the power between base and highest limit whose clock, about a tenth of the highest one,
is the lowest that a limit enforces; assumed."""


class ClockShape(NamedTuple):
    """Clock against power above the base, both relative to no limit.

    At low power the voltage is at its lowest, and the clock is proportional to the power. Towards
    the top the voltage rises with the clock, which gains less and less.

    Attributes:
        steepness: How far beyond the bend the highest power lies, > 0.
        bend: How sharp the bend is, >= 1.
    """

    steepness: float
    bend: float

    def clock(self, share: float) -> float:
        """Relative clock at a share of the power above the base; 1 at 1, concave."""
        top = 1 + self.steepness**self.bend
        clock: float = share * (top / (1 + (self.steepness * share) ** self.bend)) ** (
            1 / self.bend
        )
        return clock


class LimitCurve(NamedTuple):
    """Power and speed of one GPU against its power limit, for one case of boundness.

    Attributes:
        base_w: Power of a held GPU apart from what its clocks draw, W.
        busy_w: Mean power of a job without limit where the job's own was not measured, W.
        unlimited_w: The limit that the GPU has if nobody sets one, W.
        boundness: Share of the time of peak phases that is inverse to the clock, 0 to 1.
        peak_w: Power of the peak phases, W, up to `unlimited_w`; or a job's mean power, if more.
        clock: Relative clock at a share of the power between base and peak.
    """

    base_w: float
    busy_w: float
    unlimited_w: float
    boundness: float
    peak_w: float
    clock: Callable[[float], float]

    def under_limit(self, limit_w: float, busy_w: float | None = None) -> tuple[float, float]:
        """Mean power (W), at most the limit, and speed relative to no limit, > 0 and <= 1.

        Neither rises when the limit falls.

        Args:
            limit_w: Power limit of the GPU, W; at or above `unlimited_w` there is none.
            busy_w: Measured mean power of the job on one GPU without limit, W.
        """
        mean_w = min(self.busy_w if busy_w is None else busy_w, self.unlimited_w)
        peak_w = max(self.peak_w, mean_w)
        if limit_w >= peak_w or mean_w <= self.base_w:
            return min(limit_w, mean_w), 1.0
        duty = (mean_w - self.base_w) / (peak_w - self.base_w)
        left_w = max(limit_w - self.base_w, LEAST_SHARE * (self.unlimited_w - self.base_w))
        clock = self.clock(min(1.0, left_w / (peak_w - self.base_w)))
        peak_time = duty * (1 - self.boundness + self.boundness / clock)
        time = 1 - duty + peak_time
        return min(limit_w, ((1 - duty) * self.base_w + peak_time * limit_w) / time), 1 / time

    def power_w(self, limit_w: float, busy_w: float | None = None) -> float:
        """The power of `under_limit`, W."""
        return self.under_limit(limit_w, busy_w)[0]

    def speed(self, limit_w: float, busy_w: float | None = None) -> float:
        """The speed of `under_limit`."""
        return self.under_limit(limit_w, busy_w)[1]
