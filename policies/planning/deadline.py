"""What to do now, so that the work left is done by a deadline at the least cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.hull import (
    SpeedPoint,
    fastest,
    lower_hull,
    mix,
    paused,
    upper_hull,
)
from wattkeeper.policies.planning.optimum import Plan, fill, fill_until_done

SHORTEST_S = 60.0
"""The faster part of a slot that is split between two points takes so long at least."""


class Step(NamedTuple):
    """What to do now.

    Attributes:
        point: The operating point.
        for_s: How long, s; infinite: until more is known.
    """

    point: SpeedPoint
    for_s: float = np.inf


class Menu(NamedTuple):
    """What a job may do.

    Attributes:
        running: Its operating points.
        idle_w: Power of all its GPUs together while it pauses, W; None: it does not pause.
        restart_s: Time that a pause costs before work resumes, s.
    """

    running: tuple[SpeedPoint, ...]
    idle_w: float | None = 0.0
    restart_s: float = 0.0

    @property
    def points(self) -> tuple[SpeedPoint, ...]:
        """All points, the pause included."""
        return self.running if self.idle_w is None else (*self.running, paused(self.idle_w))


def split_time(now_s: float, until_s: float, slot_s: float, deadline_s: float) -> Floats:
    """Lengths of the present slot's rest and of the slots up to a deadline, s; shape (slots,)."""
    first_s = min(until_s, deadline_s) - now_s
    if deadline_s <= until_s:
        return np.array([first_s])
    whole, rest_s = divmod(deadline_s - until_s, slot_s)
    lengths = [first_s, *[slot_s] * int(whole)]
    return np.array([*lengths, rest_s] if rest_s > 0 else lengths)


def add_surcharge(rates: Floats, surcharge: float) -> Floats:
    """Forecast rates with a surcharge on all slots but the present one, as a share of them."""
    raised = rates + surcharge * np.abs(rates)
    raised[0] = rates[0]
    return np.asarray(raised)


def plan_step(
    menu: Menu, rates: Floats, lengths_s: Floats, work: float, is_paused: bool = False
) -> Step:
    """The first step of the best plan; the highest speed if the work cannot be done in time.

    Asked again at the end of each slot, with the work left then, this meets every deadline that the
    highest speed could meet: there is always time left for a restart, where pauses are allowed.

    Args:
        menu: What the job may do.
        rates: Forecast, by slot, shape (slots,); the first slot is the rest of the present one.
        lengths_s: Length of each, s; up to the deadline.
        work: The work left.
        is_paused: Whether it pauses now.
    """
    top = fastest(menu.running)
    if menu.idle_w is not None:
        lengths_s = _shorten(lengths_s, menu.restart_s)
        rates = rates[: len(lengths_s)]
    plan = _best_plan(menu, rates, lengths_s, work) if len(lengths_s) else None
    if plan is None:
        return Step(top)
    speed = float(plan.speeds[0])
    if menu.idle_w is not None and menu.restart_s > 0:
        speed = _avoid_restart(menu, rates, lengths_s, work, plan, is_paused)
    hull = upper_hull(menu.points) if rates[0] < 0 else lower_hull(menu.points)
    (first, share), *slower = mix(hull, speed)
    for_s = max(share * float(lengths_s[0]), SHORTEST_S)
    return Step(first, for_s) if slower and for_s < lengths_s[0] else Step(first)


def _best_plan(menu: Menu, rates: Floats, lengths_s: Floats, work: float) -> Plan | None:
    solve = fill if menu.idle_w == 0 else fill_until_done
    return solve(menu.points, rates, lengths_s, work)


def _shorten(lengths_s: Floats, time_s: float) -> Floats:
    """Slots that end earlier by some time."""
    ends = np.minimum(np.cumsum(lengths_s), lengths_s.sum() - time_s)
    shorter = np.diff(ends, prepend=0.0)
    return np.asarray(shorter[shorter > 0])


def _avoid_restart(
    menu: Menu, rates: Floats, lengths_s: Floats, work: float, plan: Plan, is_paused: bool
) -> float:
    """The speed of the first slot, as planned unless a pause or a run is too short to pay.

    A pause must save more than the work that is lost in its restart costs at the margin; so must a
    run between two pauses.
    """
    hull = lower_hull(menu.points)
    slow = hull[1]
    price = rates * (slow.power_w - hull[0].power_w) / slow.speed
    planned, pauses = float(plan.speeds[0]), plan.speeds <= 0
    if pauses[0] == is_paused or not np.isfinite(plan.marginal):
        return planned
    same = len(list(takewhile(lambda pause: pause == pauses[0], pauses)))
    if is_paused and pauses[same:].all():
        return planned  # a restart is due in any case
    gains = np.abs(price[:same] - plan.marginal) * slow.speed * lengths_s[:same]
    if gains.sum() >= abs(plan.marginal) * slow.speed * menu.restart_s:
        return planned
    if not is_paused:
        return min(slow.speed, work / float(lengths_s[0]))
    left_s = float(lengths_s[1:].sum())
    return 0.0 if work <= fastest(menu.running).speed * left_s else planned


def best_static(points: Sequence[SpeedPoint], work: float, time_s: float) -> SpeedPoint:
    """The one point that does some work within a time with the least energy.

    It is the fastest one if none is fast enough.
    """
    allowed = [point for point in points if point.speed * time_s >= work * (1 - 1e-9)]
    return min(allowed or [fastest(points)], key=lambda point: point.power_w / point.speed)
