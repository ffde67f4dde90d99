"""What the answers of policies must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.policies.points.replan import Reshape, Shape
from wattkeeper.policies.points.retain import Retention
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.views import Configuration, Knobs, Running, Start
from wattkeeper.scenarios.contract.breach import ContractBreach, require
from wattkeeper.sim.attempts.validation import (
    check_types_of_configuration,
    check_types_of_knobs,
    check_types_of_selection,
)

MOST_SLICES: Final = 50
"""Of one attempt."""


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


def check_configuration(start: Start, answer: Configuration) -> None:
    """Check the answer of `configure`."""
    require_type(answer, Configuration, "configure")
    require_allowed("configure", check_types_of_configuration, answer)
    options, size = start.options, answer.batch_size
    if not options.batch_sizes:  # it chooses the parent of a job without a workload
        return
    what = "chose the batch size {!r}; allowed: one of {}, as an int"
    known = type(size) is int and size in options.batch_sizes
    require(known, what, "configure", size, options.batch_sizes)
    if answer.power_limit_w is not None:
        _require_limit(options.limits(size), answer.power_limit_w, "configure")
    bound = answer.cost_bound
    what = "chose the cost bound {!r} J; allowed: a float above 0"
    require(is_plain(bound) and bound > 0, what, "configure", bound)


def check_knobs(running: Running, answer: Knobs | None) -> None:
    """Check the answer of `tune`."""
    if running.moment not in START_MOMENTS:
        if answer is not None:
            require_type(answer, Knobs, "tune")
            require_allowed("tune", check_types_of_knobs, answer)
        return
    require_type(answer, Knobs, "tune")
    assert answer is not None
    require_allowed("tune", check_types_of_knobs, answer)
    piece, reported = answer.slice, bool(running.measured)
    given = (answer.power_limit_w is not None) + bool(answer.profile_w) + (piece is not None)
    what = "answered {!r}; at the start it is one of power_limit_w, profile_w and slice"
    require(given == 1, what, "tune", answer)
    require(not (reported and answer.profile_w), "asks for a profile again", "tune")
    few = piece is None or len(running.measured) < MOST_SLICES
    require(few, "asks for more than {} slices of one attempt", "tune", MOST_SLICES)
    limits = running.start.options.limits(running.configuration.batch_size)
    asked = (answer.power_limit_w,) if piece is None else (piece.power_limit_w,)
    for limit_w in answer.profile_w or asked:
        _require_limit(limits, limit_w, "tune")


def _require_limit(limits: Sequence[float], limit_w: object, method: str) -> None:
    what = "chose the power limit {!r} W; allowed: one of {}, as a float"
    require(is_plain(limit_w) and limit_w in limits, what, method, limit_w, limits)


def check_selection(answer: Selection) -> None:
    """Check the answer of `select`."""
    require_type(answer, Selection, "select")
    require_allowed("select", check_types_of_selection, answer)
    for jobs in (answer.start, answer.preempt):
        twice = len({job.number for job in jobs}) < len(jobs)
        require(not twice, "names a job twice: {!r:.100}", "select", jobs)


def check_placement(new: Job, cluster: ClusterView, decision: Placement) -> None:
    """Check the answer of `place`."""
    require_type(decision, tuple, "place")
    if not decision:
        idle = int(cluster.free.sum()) == int(cluster.capacity.sum())
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
        require(
            0 <= node < len(cluster.capacity), "names node {}, which is not there", "place", node
        )
        free = int(cluster.free[node])
        what = "takes {} GPUs of node {}, which has {} free"
        require(0 < gpus <= free, what, "place", gpus, node, free)
        require(gpu == NEW, "gives whole GPUs the number {}; needed: NEW", "place", gpu)
    total = sum(gpus for _, gpus, _ in decision)
    require(total == new.gpus, "takes {} GPUs for a job of {}", "place", total, new.gpus)


def check_reshape(answer: Reshape | None) -> None:
    """Check the answer of `replan`."""
    if answer is None:
        return
    require_type(answer, Reshape, "replan")
    require_type(answer.shape, Shape, "replan")
    numbers = (answer.pause_s, answer.shape.rate, answer.shape.write_s)
    require(all(map(is_plain, numbers)), "has a number that is not plain: {!r}", "replan", answer)


def check_retention(answer: Retention) -> None:
    """Check the answer of `retain`."""
    require_type(answer, Retention, "retain")
    admit, evict = answer.admit, answer.evict
    require(type(admit) is bool, "answered admit={!r}; needed: a bool", "retain", admit)
    told = admit == (not answer.reason)
    require(told, "gives no reason for a refusal, or one for an admission", "retain")
    names = type(evict) is tuple and all(type(name) is str for name in evict)
    require(names, "answered evict={!r:.100}; needed: a tuple of ids of models", "retain", evict)
    require(len(set(evict)) == len(evict), "evicts a model twice: {!r}", "retain", evict)
