"""What the answers of policies must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.views import Configuration, Knobs, Measurement, Options, Slice
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.contract.breach import ContractBreach, require
from wattkeeper.sim.attempts.validation import (
    check_types_of_configuration,
    check_types_of_knobs,
    check_types_of_selection,
)
from wattkeeper.sim.cluster.cluster import Cluster


def is_plain(value: object) -> bool:
    """Whether it is a number of Python (numpy's are written otherwise by a journal), not NaN."""
    return type(value) in (int, float) and not math.isnan(value)  # type: ignore[arg-type]


def require_type(answer: object, expected: type, method: str) -> None:
    """Check the type of an answer.

    Raises:
        ContractBreach: If it has another one.
    """
    what = "answered {!r:.100} ({}); needed: {}"
    kept = isinstance(answer, expected)
    require(kept, what, method, answer, type(answer).__name__, expected.__name__)


def require_allowed(method: str, check: Callable[..., object], *arguments: Any) -> None:
    """Check an answer as the world does.

    Raises:
        ContractBreach: If that refuses it.
    """
    try:
        check(*arguments)
    except (PolicyError, TypeError) as error:
        raise ContractBreach(f"answered what is not allowed: {error}", method) from None


def check_configuration(options: Options, decision: Configuration) -> None:
    """Check the answer of `configure`."""
    require_type(decision, Configuration, "configure")
    require_allowed("configure", check_types_of_configuration, decision)
    size, limit_w, bound = decision.batch_size, decision.power_limit_w, decision.cost_bound
    what = "chose the batch size {!r}; allowed: one of {}, as an int"
    known = type(size) is int and size in options.batch_sizes
    require(known, what, "configure", size, options.batch_sizes)
    if limit_w is not None:
        _require_limit(options.limits(size), limit_w, "configure")
    what = "chose the cost bound {!r} J; allowed: a float above 0"
    require(is_plain(bound) and bound > 0, what, "configure", bound)


def check_knobs(limits: tuple[float, ...], decision: Knobs, *, reported: bool) -> None:
    """Check the answer of `tune` before an attempt runs; `reported`: with measurements."""
    require_type(decision, Knobs, "tune")
    require_allowed("tune", check_types_of_knobs, decision)
    piece = decision.slice
    given = (decision.power_limit_w is not None) + bool(decision.profile_w) + (piece is not None)
    what = "answered {!r}; at the start it is one of power_limit_w, profile_w and slice"
    require(given == 1, what, "tune", decision)
    require(not (reported and decision.profile_w), "asks for a profile again", "tune")
    asked = (decision.power_limit_w,) if piece is None else (piece.power_limit_w,)
    for limit_w in decision.profile_w or asked:
        _require_limit(limits, limit_w, "tune")


def _require_limit(limits: Sequence[float], limit_w: object, method: str) -> None:
    what = "chose the power limit {!r} W; allowed: one of {}, as a float"
    require(is_plain(limit_w) and limit_w in limits, what, method, limit_w, limits)


def check_selection(
    decision: Selection, waiting: Collection[int], running: Collection[int]
) -> None:
    """Check the answer of `select`, given the numbers of jobs."""
    require_type(decision, Selection, "select")
    require_allowed("select", check_types_of_selection, decision)
    _check_jobs(decision.start, waiting, "starts {}, which does not wait")
    _check_jobs(decision.preempt, running, "preempts {}, which does not run")


def _check_jobs(jobs: tuple[Job, ...], allowed: Collection[int], what: str) -> None:
    for job in jobs:
        require(job.number in allowed, what, "select", job.job_id)
    twice = len({job.number for job in jobs}) < len(jobs)
    require(not twice, "names a job twice: {!r:.100}", "select", jobs)


def check_placement(new: Job, cluster: Cluster, decision: Placement) -> None:
    """Check the answer of `place`."""
    require_type(decision, tuple, "place")
    if not decision:
        idle = cluster.free_gpus == cluster.spec.gpus
        require(not idle, "refuses what fits an idle cluster, and would never run it", "place")
        return
    plain = all(type(slot) is tuple and len(slot) == 3 for slot in decision) and all(
        type(value) is int for slot in decision for value in slot
    )
    what = "answered {!r}; needed: slots (node, GPUs, NEW) of plain ints"
    require(plain, what, "place", decision)
    nodes = {node for node, _, _ in decision}
    require(len(nodes) == len(decision), "has two slots on one node: {!r}", "place", decision)
    for node, gpus, gpu in decision:
        require(0 <= node < cluster.spec.nodes, "names node {}, which is not there", "place", node)
        free = int(cluster.free[node])
        what = "takes {} GPUs of node {}, which has {} free"
        require(0 < gpus <= free, what, "place", gpus, node, free)
        require(gpu == NEW, "gives whole GPUs the number {}; needed: NEW", "place", gpu)
    total = sum(gpus for _, gpus, _ in decision)
    require(total == new.gpus, "takes {} GPUs for a job of {}", "place", total, new.gpus)


def measure(known: Profile, batch_size: int, piece: Slice) -> Measurement:
    """What a slice measures."""
    time_s, energy_j = known.curves[batch_size].epoch(piece.power_limit_w)
    part = piece.epochs(time_s, known.samples_per_epoch, batch_size)
    return Measurement(
        piece.power_limit_w,
        time_s,
        energy_j / time_s,
        0,
        batch_size,
        part * time_s,
        part * energy_j,
    )
