"""A recorded sweep of the power limits of a GPU, and power and speed between its limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.interpolation import monotone_cubic
from wattkeeper.traces.schema import field, table_schema

FEWEST_POINTS: Final = 2

SWEEP: Final = table_schema(
    "sweep",
    ["limit_w"],
    [
        field("limit_w", pa.float64(), "W", "power limit of the GPU", "> 0"),
        field("power_w", pa.float64(), "W", "mean power of the GPU under it", "> 0"),
        field("speed", pa.float64(), "", "work in a time under it, in any unit", "> 0"),
    ],
)


class LimitPoint(NamedTuple):
    """What one load did under one power limit; fields as in `SWEEP`."""

    limit_w: float
    power_w: float
    speed: float


def read_sweep(path: Path) -> tuple[LimitPoint, ...]:
    """The points of a CSV file with the columns of `SWEEP`, by limit.

    Raises:
        TraceError: If it is no such file; with the malformed rows.
    """
    from wattkeeper.traces.readers.csvfile import read_csv

    rows = read_csv(path, SWEEP).table.to_pylist()
    return tuple(sorted(LimitPoint(**row) for row in rows))


def find_fault(points: Sequence[LimitPoint]) -> str:
    """Why points are not a sweep; empty if they are."""
    limits_w = {point.limit_w for point in points}
    if len(limits_w) < FEWEST_POINTS:
        return f"of power limits at least {FEWEST_POINTS} are needed; it has {len(limits_w)}"
    if len(limits_w) < len(points):
        twice = next(p.limit_w for p in points if sum(q.limit_w == p.limit_w for q in points) > 1)
        return f"limit_w {twice:g} stands there twice"
    return ""


class SweepCurve:
    """Power and speed of a job under a limit, from a sweep of another load on the same GPU.

    A job that draws r times the power of the recorded load without a limit is slowed by a limit as
    that load is by a limit 1 / r times as high, and draws r times its power there. Between recorded
    limits, power and speed are interpolated as those of profiles are.
    """

    def __init__(self, points: Sequence[LimitPoint]) -> None:
        columns: Floats = np.array(points, dtype=np.float64)
        self._limits_w, self._powers_w, speeds = columns.T
        self._speeds: Floats = speeds / speeds[-1]

    def under_limit(self, limit_w: float, busy_w: float | None = None) -> tuple[float, float]:
        """Mean power (W) and speed relative to no limit.

        Args:
            limit_w: Power limit of the GPU, W; there is none at or above the highest recorded one.
            busy_w: Measured mean power of the job on one GPU without limit, W.

        Raises:
            ValueError: If the sweep has no limit as low as that for such a job.
        """
        own_w = float(self._powers_w[-1])
        ratio = 1.0 if busy_w is None else busy_w / own_w
        if not ratio or limit_w / ratio >= self._limits_w[-1]:
            return ratio * own_w, 1.0
        if limit_w / ratio < self._limits_w[0] * (1 - 1e-9):
            raise ValueError(f"{limit_w:g} W is below the recorded limits")
        at = np.array([max(limit_w / ratio, float(self._limits_w[0]))])
        power_w, speed = (
            float(monotone_cubic(self._limits_w, values, at)[0])
            for values in (self._powers_w, self._speeds)
        )
        return ratio * power_w, speed

    def power_w(self, limit_w: float, busy_w: float | None = None) -> float:
        """The power of `under_limit`, W."""
        return self.under_limit(limit_w, busy_w)[0]

    def speed(self, limit_w: float, busy_w: float | None = None) -> float:
        """The speed of `under_limit`."""
        return self.under_limit(limit_w, busy_w)[1]
