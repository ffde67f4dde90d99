"""Shares of one power cap for several running jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal

from wattkeeper.policies.planning.hull import SpeedPoint, fastest, lower_hull

Sharing = Literal["marginal", "proportional", "common"]

ROUNDING_W: Final = 1e-9
"""Power and fractions that should be equal differ by less, by rounding."""


def share_out(
    menus: Sequence[Sequence[SpeedPoint]], weights: Sequence[float], room_w: float, sharing: Sharing
) -> list[SpeedPoint]:
    """A point of each job's menu, so that all together draw up to `room_w` W.

    `marginal` goes along the lower convex hulls of the jobs, always by the piece that gives most
    weighted speed for a watt, and spends what is left where it still buys a faster point: but for
    that rest, the weighted sum of speeds is the highest there is. `proportional` grants each job
    the same fraction of its highest power, `common` the same fraction of its highest limit, or of
    its highest clock, one for all instructions.

    Where `room_w` does not suffice for the points of least power, these are returned.
    """
    if sharing == "marginal":
        return _share_by_gain(menus, weights, room_w)
    if sharing == "common":
        common = [_common_points(menu) for menu in menus]
        if sum(cheapest(menu).power_w for menu in common) > room_w + ROUNDING_W:
            return [cheapest(menu) for menu in menus]
        menus = common
    return _share_by_fraction(menus, room_w, sharing == "common")


def _common_points(menu: Sequence[SpeedPoint]) -> Sequence[SpeedPoint]:
    """The points that one fraction for all jobs is taken of: limits, else clocks, else plans."""
    single = [point for point in menu if not point.plan]
    return [point for point in single if not point.clock_mhz] or single or menu


def cheapest(menu: Sequence[SpeedPoint]) -> SpeedPoint:
    """The point of least power; of several, the fastest."""
    return min(menu, key=lambda point: (point.power_w, -point.speed))


def _share_by_gain(
    menus: Sequence[Sequence[SpeedPoint]], weights: Sequence[float], room_w: float
) -> list[SpeedPoint]:
    chosen = [cheapest(menu) for menu in menus]
    left_w = room_w - sum(point.power_w for point in chosen)
    pieces = []
    for number, (menu, least) in enumerate(zip(menus, chosen, strict=True)):
        hull = lower_hull(point for point in menu if point.speed >= least.speed)
        for rank, (slow, fast) in enumerate(pairwise(hull)):
            gain = weights[number] * (fast.speed - slow.speed) / (fast.power_w - slow.power_w)
            pieces.append((-gain, number, rank, fast))
    full = set()
    for _, number, _, point in sorted(pieces):
        more_w = point.power_w - chosen[number].power_w
        if number in full or more_w > left_w + ROUNDING_W:
            full.add(number)
            continue
        chosen[number] = point
        left_w -= more_w
    for number, menu in enumerate(menus):
        most_w = chosen[number].power_w + left_w + ROUNDING_W
        allowed = [point for point in menu if point.power_w <= most_w]
        better = fastest(allowed or [chosen[number]])
        if better.speed > chosen[number].speed:
            left_w -= better.power_w - chosen[number].power_w
            chosen[number] = better
    return chosen


def _share_by_fraction(
    menus: Sequence[Sequence[SpeedPoint]], room_w: float, of_limit: bool
) -> list[SpeedPoint]:
    def size(point: SpeedPoint) -> float:
        return (point.clock_mhz or point.power_limit_w) if of_limit else point.power_w

    rated = []
    for menu in menus:
        most = max(map(size, menu))
        rated.append([(size(point) / most, point) for point in menu])
    fractions = {fraction for rates in rated for fraction, _ in rates}
    for most in sorted(fractions, reverse=True):
        chosen = []
        for rates in rated:
            allowed = [point for fraction, point in rates if fraction <= most + ROUNDING_W]
            chosen.append(fastest(allowed or [cheapest([point for _, point in rates])]))
        if sum(point.power_w for point in chosen) <= room_w + ROUNDING_W:
            return chosen
    return [cheapest(menu) for menu in menus]
