"""Measures power limits while a training goes on (Zeus, NSDI '23, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from wattkeeper.policies.protocols import Measurement

if TYPE_CHECKING:
    from wattkeeper.live.devices.energy_meter import Reading

LEAST: Final = 2
"""Steps a limit, so that one can warm up and one be measured."""
WARM_PART, WARM_MOST = 5, 10
"""A fifth of a limit's steps, but at most ten, warm up: they are done and paid, not measured."""


class PowerProfiler:
    """Shares the steps of an epoch out among limits, and measures each.

    Where the number of steps is not known, or below two a limit, each limit has a whole epoch.

    Args:
        limits_w: In this order, W.
        steps: Of an epoch; None if not known.
        read: Time and energy now.
        limit: Puts a limit in force.

    Attributes:
        measurements: What was measured so far.
    """

    def __init__(
        self,
        limits_w: tuple[float, ...],
        steps: int | None,
        read: Callable[[], Reading],
        limit: Callable[[float], None],
    ) -> None:
        self.measurements: list[Measurement] = []
        self._left = limits_w
        self._steps = steps if steps is not None and steps >= LEAST * len(limits_w) else None
        self._read, self._limit = read, limit

    @property
    def over(self) -> bool:
        """Whether all limits are measured."""
        return not self._left

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        self._done, self._shares = 0, len(self._left)
        self._mark, self._marked_at = self._read(), 0
        self._limit(self._left[0])

    def step(self) -> None:
        """Note a step."""
        if self.over or self._steps is None:
            return
        self._done += 1
        share = self._shares - len(self._left)
        first, end = (index * self._steps // self._shares for index in (share, share + 1))
        warm = first + max(1, min(WARM_MOST, (end - first) // WARM_PART))
        if self._done == warm:
            self._mark, self._marked_at = self._read(), warm
        elif self._done == end:
            self._add_measurement(self._steps / (end - self._marked_at))
            if self._left:
                self._limit(self._left[0])

    def end_epoch(self) -> None:
        """End an epoch; limits that had too few steps are measured in the next one."""
        if not self.over and self._steps is None:
            self._add_measurement(1.0)

    def _add_measurement(self, parts: float) -> None:
        """Add what the limit in force took since the mark, over `1 / parts` of an epoch."""
        now, then = self._read(), self._mark
        time_s = now.time_s - then.time_s
        energy_j = (now.energy_j or 0.0) - (then.energy_j or 0.0)
        power_w = energy_j / time_s if time_s > 0 else 0.0
        self.measurements.append(Measurement(self._left[0], time_s * parts, power_w))
        self._left = self._left[1:]
