"""Power and speed by limit: known beforehand, or measured when a group first runs a batch size."""

from __future__ import annotations

import math
from typing import Any, Literal

from wattkeeper.policies.planning.hull import SpeedPoint, speed_points
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Measurement, Running
from wattkeeper.policies.profile import Curve

ProfileSource = Literal["known", "measured"]

DONE = 1e-9
"""Less work than this share of all is none, by rounding."""


class CurveTune(Tune):
    """A policy that chooses along curves of power and speed.

    Args:
        source: `known`: those that attempts are replayed from. `measured`: what was measured.
    """

    def __init__(self, source: ProfileSource) -> None:
        self.curves = Curves(source)

    def state_dict(self) -> dict[str, Any]:
        """What was measured."""
        return self.curves.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.curves.load_state_dict(state)


class Curves:
    """The curves of attempts.

    Args:
        source: `known`: those that attempts are replayed from. `measured`: what was measured.
    """

    def __init__(self, source: ProfileSource) -> None:
        self._source = source
        self._measured: dict[str, tuple[Measurement, ...]] = {}

    def find(self, ctx: Context, running: Running) -> Curve | None:
        """The curve of an attempt at its batch size; None if it must be measured first."""
        batch_size = running.configuration.batch_size
        if self._source == "known":
            return ctx.foresight(running.start).curves[batch_size]
        key = f"{running.start.learning_key}/{batch_size}"
        if running.measured:
            self._measured[key] = running.measured
        if key not in self._measured:
            return None
        rows = sorted(point[:3] for point in self._measured[key])
        limits, time_s, power_w = zip(*rows, strict=True)
        return Curve(batch_size, limits, time_s, power_w, (math.inf,))

    @staticmethod
    def measure(running: Running) -> Knobs:
        """The request to measure all limits, the highest one first.

        A job without a workload cannot be measured, and runs at the highest limit.
        """
        limits = running.start.options.limits(running.configuration.batch_size)
        if running.start.job.workload is None:
            return Knobs(limits[-1])
        return Knobs(profile_w=limits[::-1])

    def state_dict(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "measured": {key: [list(m[:3]) for m in rows] for key, rows in self._measured.items()}
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._measured = {
            key: tuple(Measurement(*row) for row in rows) for key, rows in state["measured"].items()
        }


def speed_and_work(running: Running, curve: Curve) -> tuple[tuple[SpeedPoint, ...], float]:
    """Operating points of an attempt, and its work left in their unit.

    The unit is an epoch; for jobs without a workload, a second at the highest limit.
    """
    start, progress = running.start, running.progress
    job, options = start.job, start.options
    points = speed_points(curve)
    if job.workload is None:
        total, done = job.duration_s, progress.work_s
    else:
        points = tuple(point._replace(speed=point.speed / job.time_scale) for point in points)
        recorded = [epochs for epochs in curve.epochs if epochs <= options.max_epochs]
        longest = max(recorded) if len(recorded) == len(curve.epochs) else options.max_epochs
        total, done = float(options.fixed_epochs or longest), progress.epochs
    return points, total - done if total - done > DONE * total else 0.0
