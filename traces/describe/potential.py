"""Possible savings by choice of batch size and power limit, computed from a profile.

Expected values include the retries of failed runs (`Curve.expected_epochs`). The savings
are those of an oracle that knows the profile; a policy that has to explore saves less.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wattkeeper.policies.profile import UNLIMITED_W, ExpectedCost, Objective, Profile, expectations


class Choice(NamedTuple):
    """A configuration and its savings relative to the default; a negative saving is a loss.

    Attributes:
        batch_size: Samples.
        power_limit_w: W of each GPU; None if it has no limit.
        time_s: Expected seconds to the target.
        energy_j: Expected energy in J; None if power was not measured.
        cost: Expected cost in J at the potential's `eta`.
        time_saving_pct: In %; None if the default never reaches the target.
        energy_saving_pct: In %; None if the default never reaches the target.
        cost_saving_pct: In %; None if the default never reaches the target.
        clock_mhz: Locked clock of each GPU, MHz; None: free.
    """

    batch_size: int
    power_limit_w: float | None
    time_s: float
    energy_j: float | None
    cost: float
    time_saving_pct: float | None
    energy_saving_pct: float | None
    cost_saving_pct: float | None
    clock_mhz: int | None = None


class Potential(NamedTuple):
    """The cheapest configurations of a workload on a GPU type.

    Attributes:
        workload: Name of the workload.
        gpu_type: Name of the GPU type.
        gpus: GPUs of the job.
        eta: The knob of the cost.
        default: Default batch size at the highest limit; None if it never reaches the target.
        both: Cheapest of all configurations; None if none reaches the target.
        power_limit: Cheapest at the default batch size; None like `default`.
        batch_size: Cheapest at the highest limit of each batch size; None like `both`.
        configurations: Number of configurations that were recorded.
        frontier: Number of configurations that no other one beats in both time and energy.
    """

    workload: str
    gpu_type: str
    gpus: int
    eta: float
    default: Choice | None
    both: Choice | None
    power_limit: Choice | None
    batch_size: Choice | None
    configurations: int
    frontier: int


def potential(profile: Profile, eta: float) -> Potential:
    """The cheapest configurations of a profile (Zeus, NSDI '23, section 2 and figure 1).

    Ties go to the smaller batch size, then to the lower limit.

    Args:
        profile: The profile of a workload on a GPU type.
        eta: 1 counts energy only, 0 counts time only.
    """
    expected = list(expectations(profile, Objective(eta)))
    at_default = [e for e in expected if e.batch_size == profile.default_batch_size]
    highest = {b: curve.max_limit_w for b, curve in profile.curves.items()}
    at_highest = [
        e for e in expected if e.power_limit_w == highest[e.batch_size] and not e.clock_mhz
    ]
    default = next((e for e in at_default if e in at_highest), None)
    return Potential(
        workload=profile.workload,
        gpu_type=profile.gpu_type,
        gpus=profile.gpus,
        eta=eta,
        default=_choice([default] if default else [], default),
        both=_choice(expected, default),
        power_limit=_choice(at_default, default),
        batch_size=_choice(at_highest, default),
        configurations=sum(
            len(curve.limits_w) + len(curve.clocks) for curve in profile.curves.values()
        ),
        frontier=len(frontier(expected)),
    )


def frontier(candidates: Iterable[ExpectedCost]) -> list[ExpectedCost]:
    """The Pareto front of expected time and energy, by ascending time."""
    front: list[ExpectedCost] = []
    for candidate in sorted(candidates, key=lambda e: (e.time_s, e.energy_j)):
        if not front or candidate.energy_j < front[-1].energy_j:
            front.append(candidate)
    return front


def _choice(among: Sequence[ExpectedCost], default: ExpectedCost | None) -> Choice | None:
    if not among:
        return None
    best = min(among, key=lambda e: e.cost)
    limit_w = None if best.power_limit_w == UNLIMITED_W else best.power_limit_w
    known = best.batch_size, limit_w, best.time_s, best.energy_j or None, best.cost
    if default is None:
        return Choice(*known, None, None, None, best.clock_mhz or None)
    return Choice(
        *known,
        100 * (1 - best.time_s / default.time_s),
        100 * (1 - best.energy_j / default.energy_j) if default.energy_j else None,
        100 * (1 - best.cost / default.cost),
        best.clock_mhz or None,
    )
