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

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.numerics.portable import dot
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
    """Pieces of the hulls of slots, in any order, and what the slots do without any piece."""

    slot: Ints
    work: Floats
    price: Floats
    base_work: Floats
    base_cost: Floats


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
    return _take(_cut(points, rates, lengths_s), lengths_s, work)


def fill_until_done(
    points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, work: float
) -> Plan | None:
    """As `fill`, for a job that ends when its work is done, in whichever slot that is best.

    For jobs that never pause, or that hold idle GPUs while they do. The plan is exact for each last
    slot; by duality, the marginal cost of each plan bounds the costs for all other last slots from
    below, so that few of them are tried.
    """
    slowest, quickest = (pick(point.speed for point in points) for pick in (min, max))
    done = np.cumsum(lengths_s)
    possible = (quickest * done >= work * (1 - ROUNDING)) & (
        slowest * (done - lengths_s) <= work * (1 + ROUNDING)
    )
    bounds = np.where(possible, -np.inf, np.inf)
    best: Plan | None = None
    end = int(np.argmax(possible))
    while best is None or bounds[end] < best.cost:
        if not bounds[end] < np.inf:
            break
        plan = _end_in(end, points, rates, lengths_s, work)
        bounds[end] = np.inf
        if plan and (best is None or plan.cost < best.cost):
            best = plan
        if plan and np.isfinite(plan.marginal):
            bounds = np.maximum(bounds, _bound(points, rates, lengths_s, work, plan.marginal))
        end = int(np.argmin(bounds))
    if best is None:
        return None
    return best._replace(speeds=np.pad(best.speeds, (0, len(rates) - best.used)))


def _end_in(
    end: int, points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, work: float
) -> Plan | None:
    """The plan of a job that ends in a slot, after which it draws nothing."""
    before = _cut(points, rates[:end], lengths_s[:end])
    last = slice(end, end + 1)
    after = _cut((*points, paused(0.0)), rates[last], lengths_s[last])
    after = after._replace(slot=after.slot + end)
    joined = _Pieces(*(np.concatenate(pair) for pair in zip(before, after, strict=True)))
    return _take(joined, lengths_s[: end + 1], work)


def _bound(
    points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats, work: float, marginal: float
) -> Floats:
    """Lower bounds of the cost by last slot, by the dual program; shape (slots,)."""
    speed, power = np.array([point[:2] for point in points]).T
    least = (np.multiply.outer(rates, power) - marginal * speed).min(axis=1) * lengths_s
    return np.asarray(marginal * work + np.cumsum(least) - least + np.minimum(least, 0.0))


def _cut(points: Sequence[SpeedPoint], rates: Floats, lengths_s: Floats) -> _Pieces:
    """The hulls of slots as pieces; the upper hull, where power is paid for."""
    base_work, base_cost = np.empty(len(rates)), np.empty(len(rates))
    slots, works, prices = [], [], []
    for hull, where in (
        (lower_hull(points), np.flatnonzero(rates >= 0)),
        (upper_hull(points), np.flatnonzero(rates < 0)),
    ):
        speed = np.diff([point.speed for point in hull])
        slope = np.diff([point.power_w for point in hull]) / speed
        base_work[where] = hull[0].speed * lengths_s[where]
        base_cost[where] = hull[0].power_w * rates[where] * lengths_s[where]
        slots.append(np.repeat(where, len(speed)))
        works.append(np.multiply.outer(lengths_s[where], speed).ravel())
        prices.append(np.multiply.outer(rates[where], slope).ravel())
    slot, work, price = (np.concatenate(each) for each in (slots, works, prices))
    return _Pieces(slot, work, price, base_work, base_cost)


def _take(pieces: _Pieces, lengths_s: Floats, work: float) -> Plan | None:
    """Take pieces by price until the work is done; of equal ones, those of earlier slots first."""
    order = np.lexsort((pieces.slot, pieces.price))
    slot, amount, price = pieces.slot[order], pieces.work[order], pieces.price[order]
    left = work - float(pieces.base_work.sum())
    tolerance = ROUNDING * max(work, 1e-300)
    total = np.cumsum(amount)
    most = float(total[-1]) if len(total) else 0.0
    if left < -tolerance or left > most + tolerance:
        return None
    left = min(max(left, 0.0), most)
    whole = int(np.searchsorted(total, left, side="right"))
    taken = amount[: whole + 1].copy()
    if whole < len(total):
        taken[whole] = left - (float(total[whole - 1]) if whole else 0.0)
    cost = float(pieces.base_cost.sum()) + dot(taken, price[: whole + 1])
    done = pieces.base_work + np.bincount(slot[: whole + 1], taken, len(lengths_s))
    speeds = np.divide(done, lengths_s, out=np.zeros(len(done)), where=lengths_s > 0)
    marginal = float(price[whole]) if whole < len(total) else np.inf
    return Plan(speeds, cost, marginal, len(lengths_s))
