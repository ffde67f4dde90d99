"""The best plan of one job over slots with known rates: an exact linear program.

In each slot a job mixes operating points; the energy of the slot costs its rate (carbon intensity,
price, or 1). With the work fixed, the program separates: each slot's hull of operating points is a
chain of pieces of rising ``rate x slope``, and the pieces of all slots are taken in that order
until the work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.planning.hull import SpeedPoint, lower_hull, paused, upper_hull

ROUNDING = 1e-12
"""Share of the work by which sums differ through rounding."""


class Plan(NamedTuple):
    """A plan over slots.

    Attributes:
        speeds: Mean speed by slot, work per second, shape (slots,).
        cost: Energy times rate, in J times the unit of the rates.
        marginal: What a further unit of work would cost; infinite if no more can be done.
        used: Number of slots in which the job is there: it ends in the last one of them.
    """

    speeds: Floats
    cost: float
    marginal: float
    used: int


class _Pieces(NamedTuple):
    """Pieces of the hulls of all slots, in the order in which they are taken."""

    slot: Ints
    work: Floats
    price: Floats
    last: Bools
    """Whether it belongs to the last slot of a run, after which the job draws nothing."""

    def pick(self, index: Ints | Bools) -> _Pieces:
        """Some of them."""
        return _Pieces(self.slot[index], self.work[index], self.price[index], self.last[index])


def fill(
    points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, work: float
) -> Plan | None:
    """The plan that does some work at the least cost; None if it cannot be done.

    The job draws the power of one of its points, or of a mix of them, in all slots, also after its
    last work: a job that ends before needs a point without speed and power (`paused(0)`), or
    `fill_until_done`.

    Args:
        points: What it may do; a pause is a point, too.
        rates: By slot; below zero, too. Shape (slots,).
        lengths_s: Length of each slot, s, shape (slots,).
        work: In units of speed times s.
    """
    first = _base(points, rates)
    base_work, base_cost = first[:, 0] * lengths_s, first[:, 1] * rates * lengths_s
    pieces = _sort([_pieces(points, rates, lengths_s, last=False)])
    return _take(pieces, base_work, float(base_cost.sum()), lengths_s, work)


def fill_until_done(
    points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, work: float
) -> Plan | None:
    """As `fill`, for a job that ends when its work is done, in whichever slot that is best.

    For jobs that never pause, or that hold idle GPUs while they do.
    """
    ending = (*points, paused(0.0))
    first, end = _base(points, rates), _base(ending, rates)
    base_work, base_cost = first[:, 0] * lengths_s, first[:, 1] * rates * lengths_s
    done = np.concatenate([[0.0], np.cumsum(base_work)])
    cost = np.concatenate([[0.0], np.cumsum(base_cost)])
    most = np.cumsum(max(point.speed for point in points) * lengths_s)
    least = np.cumsum(min(point.power_w for point in points) * rates * lengths_s)
    pieces = _sort([
        _pieces(points, rates, lengths_s, last=False), _pieces(ending, rates, lengths_s, last=True)
    ])  # fmt: skip
    best: Plan | None = None
    never_negative = bool((rates >= 0).all())
    for index in range(len(rates)):
        if most[index] < work * (1 - ROUNDING):
            continue
        if done[index] > work or (
            best and never_negative and index and least[index - 1] >= best.cost
        ):
            break
        chosen = np.where(pieces.last, pieces.slot == index, pieces.slot < index)
        base = np.append(base_work[:index], end[index, 0] * lengths_s[index])
        base_j = float(cost[index] + end[index, 1] * rates[index] * lengths_s[index])
        plan = _take(pieces.pick(chosen), base, base_j, lengths_s[: index + 1], work)
        if plan and (best is None or plan.cost < best.cost):
            best = plan
    if best is None:
        return None
    return best._replace(speeds=np.pad(best.speeds, (0, len(rates) - best.used)))


def _base(points: Sequence[SpeedPoint], rates: Floats) -> Floats:
    """Speed and power of the slowest mix by slot, shape (slots, 2)."""
    below, above = lower_hull(points)[0], upper_hull(points)[0]
    return np.where((rates < 0)[:, None], above[:2], below[:2])


def _pieces(
    points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, *, last: bool
) -> _Pieces:
    """The pieces of all slots."""
    found: list[_Pieces] = []
    for hull, where in (
        (lower_hull(points), np.flatnonzero(rates >= 0)),
        (upper_hull(points), np.flatnonzero(rates < 0)),
    ):
        if not len(where):
            continue
        speed = np.diff([point.speed for point in hull])
        slope = np.diff([point.power_w for point in hull]) / speed
        work = np.multiply.outer(lengths_s[where], speed)
        price = np.multiply.outer(rates[where], slope)
        slot = np.repeat(where, len(speed))
        found.append(_Pieces(slot, work.ravel(), price.ravel(), np.full(len(slot), last)))
    return _join(found)


def _join(pieces: Sequence[_Pieces]) -> _Pieces:
    if len(pieces) == 1:
        return pieces[0]
    slot, work, price, last = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return _Pieces(slot, work, price, last)


def _sort(pieces: Sequence[_Pieces]) -> _Pieces:
    """By price; equal ones by slot: work is done as early as it costs no more."""
    joined = _join(pieces)
    return joined.pick(np.lexsort((joined.slot, joined.price)))


def _take(
    pieces: _Pieces, base_work: Floats, base_cost: float, lengths_s: Floats, work: float
) -> Plan | None:
    """Take pieces in their order until the work is done."""
    left = work - float(base_work.sum())
    tolerance = ROUNDING * max(work, 1e-300)
    total = np.cumsum(pieces.work)
    most = float(total[-1]) if len(total) else 0.0
    if left < -tolerance or left > most + tolerance:
        return None
    left = min(max(left, 0.0), most)
    whole = int(np.searchsorted(total, left, side="right"))
    taken = pieces.work[: whole + 1].copy()
    if whole < len(total):
        taken[whole] = left - (float(total[whole - 1]) if whole else 0.0)
    cost = base_cost + float(taken @ pieces.price[: whole + 1])
    done = base_work + np.bincount(pieces.slot[: whole + 1], taken, len(base_work))
    speeds = np.divide(done, lengths_s, out=np.zeros(len(done)), where=lengths_s > 0)
    marginal = float(pieces.price[whole]) if whole < len(total) else np.inf
    return Plan(speeds, cost, marginal, len(base_work))
