"""Replays one job with a deadline over a series of rates, slot by slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.deadline import Menu, add_surcharge, plan_step, split_time
from wattkeeper.policies.planning.hull import SpeedPoint, fastest

Predict = Callable[[int, int], Floats]
"""Forecast of a slot and those after it, by its number and their number."""


class Replayed(NamedTuple):
    """What became of a job: energy x rate, its end (s), and how often its knobs changed."""

    cost: float
    end_s: float
    changes: int
    restarts: int


def replay_plan(
    menu: Menu,
    rates: Floats,
    slot_s: float,
    work: float,
    deadline_s: float,
    predict: Predict,
    surcharge: float = 0.0,
) -> Replayed:
    """Replay the plan of one slot ahead; the job starts at second 0, which begins slot 0."""
    now_s, left, cost, changes, restarts = 0.0, work, 0.0, 0, 0
    before: SpeedPoint | None = None
    while left > 1e-9 * work:
        slot = int(now_s // slot_s + 1e-9)
        until_s = (slot + 1) * slot_s
        if now_s < deadline_s:
            lengths = split_time(now_s, until_s, slot_s, deadline_s)
            forecast = add_surcharge(predict(slot, len(lengths)), surcharge)
            is_paused = before is not None and before.speed == 0
            point, for_s = plan_step(menu, forecast, lengths, left, is_paused)
        else:
            point, for_s = fastest(menu.running), np.inf
        if before is not None and before.speed == 0 and point.speed > 0:
            cost += menu.restart_s * (menu.idle_w or 0.0) * rates[slot]
            now_s += menu.restart_s
            restarts += 1
            before = point
            continue
        changes += before is not None and before != point
        before = point
        step_s = min(for_s, until_s - now_s)
        if point.speed > 0:
            step_s = min(step_s, left / point.speed)
        cost += point.power_w * step_s * rates[slot]
        left -= point.speed * step_s
        now_s = until_s if step_s == until_s - now_s else now_s + step_s
    return Replayed(cost, now_s, changes, restarts)


def replay_static(point: SpeedPoint, rates: Floats, slot_s: float, work: float) -> float:
    """Energy x rate of a job at one point."""
    whole, rest_s = divmod(work / point.speed, slot_s)
    lengths = np.append(np.full(int(whole), slot_s), rest_s)
    return float(lengths @ rates[: len(lengths)]) * point.power_w
