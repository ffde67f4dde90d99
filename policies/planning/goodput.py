"""Expected goodput of an elastic job of constant size, under losses at a constant rate.

Between two losses all that was not committed is lost, and each loss costs a pause, which another
loss lets start anew.
"""

from __future__ import annotations

import math
from typing import Final

from wattkeeper.policies.points.replan import ElasticTask, Shape

LARGEST: Final = 700.0
"""The exponential of a larger number is no float."""


def useful_share(work_s: float, write_s: float, pause_s: float, mean_s: float) -> float:
    """Share of time in committed work, if losses are exponential (Daly, FGCS 2006, section 3).

    Args:
        work_s: Work between two commits, s.
        write_s: Time of a commit, s.
        pause_s: Pause after a loss, s.
        mean_s: Mean time between losses, s.
    """
    cycle = (work_s + write_s) / mean_s
    if not 0 < cycle < LARGEST:
        return 0.0
    return work_s / mean_s * math.exp(-pause_s / mean_s) / math.expm1(cycle)


def time_of_pause_s(pause_s: float, mean_s: float) -> float:
    """Mean time until a pause ends that starts anew with each loss, s; infinite if never."""
    return mean_s * math.expm1(pause_s / mean_s) if pause_s / mean_s < LARGEST else math.inf


def shape_goodput(
    shape: Shape, task: ElasticTask, pause_s: float, mean_s: float, announced: float
) -> float:
    """Committed samples a second with a shape.

    Args:
        shape: The shape.
        task: What is trained.
        pause_s: Pause after a loss, s.
        mean_s: Mean time between losses, s.
        announced: Share of the losses that are announced early enough to write a checkpoint.
    """
    if shape.rate <= 0:
        return 0.0
    step_s = task.batch / shape.rate
    if shape.commit_steps:
        work_s = shape.commit_steps * step_s
        return shape.rate * useful_share(work_s, shape.write_s, pause_s, mean_s)
    kept = announced if shape.saves_on_notice else 0.0
    return kept * shape.rate * useful_share(step_s, 0.0, pause_s + task.checkpoint_s, mean_s)
