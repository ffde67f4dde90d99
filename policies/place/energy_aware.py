"""Jobs on the GPU types on which they take the least energy: `energy-aware`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field
from typing_extensions import override

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.place._tightest import BestFit
from wattkeeper.policies.planning.assignment import WorkloadDemand, assign
from wattkeeper.policies.points.job import Job, Placement
from wattkeeper.policies.points.place import ClusterView, Place
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import PolicyConfig

GROWTH: Final = 1.1
"""Prices are computed anew when so many times as many jobs have ended."""

LEAST: Final = 8
"""Jobs of a workload after which its energy on a type is known."""

ERRORS: Final = 2.0
"""Standard errors by which an energy that is known from few jobs may be lower than their mean: a
type that had bad luck is tried again."""

STEP: Final = 0.1
"""Change of patience by a job that took no time at all; by one of twice the limit, its opposite."""

SAME: Final = 0.02
"""Types whose costs differ by a smaller share are alike: prices are those of a mean, and jobs of a
workload that is divided between two types cost the same on both."""


class Tally(NamedTuple):
    """What the attempts of a workload took on a GPU type; `squares_j2`: of their energies."""

    reached: int
    time_s: float
    energy_j: float
    squares_j2: float

    @property
    def is_known(self) -> bool:
        """Whether there is more than one, so that their spread is known, too."""
        return self.reached >= LEAST

    @property
    def least_energy_j(self) -> float:
        """The energy of a job, if the mean so far is too large by twice its standard error, J."""
        mean_j = self.energy_j / self.reached
        variance = max(0.0, self.squares_j2 / self.reached - mean_j**2)
        return max(0.0, mean_j - ERRORS * math.sqrt(variance / (self.reached - 1)))


NOTHING: Final = Tally(0, 0.0, 0.0, 0.0)


class Learnt(NamedTuple):
    """What is known when prices are computed.

    Attributes:
        tallies: By workload with its number of GPUs, and by GPU type.
        submitted: Jobs by workload.
        elapsed_s: Time in which they were submitted, s.
    """

    tallies: dict[str, dict[str, Tally]]
    submitted: dict[str, int]
    elapsed_s: float


Prices = tuple[float, ...]
"""What a GPU of each type costs, W."""


class EnergyAware(Place):
    """See `EnergyAwareConfig`."""

    def __init__(self, config: EnergyAwareConfig) -> None:
        self._limit_s = math.inf if config.completion_s is None else config.completion_s
        self._best_fit = BestFit()
        self._tallies: dict[str, dict[str, Tally]] = {}
        self._submitted: dict[str, int] = {}
        self._open: set[str] = set()
        self._ended, self._patience = 0, 1.0
        self._next_solution = 1
        self._basis: Learnt | None = None
        self._prices: Prices | None = None

    @override
    def on_submit(self, ctx: Context, job: Job) -> None:
        if job.workload is not None:
            key = _key(job)
            self._submitted[key] = self._submitted.get(key, 0) + 1
            self._open.add(job.job_id)

    @override
    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn what an attempt took, and from time to time what that says of prices."""
        job = outcome.start.job
        if job.job_id not in self._open:
            return
        if math.isnan(outcome.energy_j):
            raise PolicyError("energy-aware learns from energies, and none is measured", "place")
        by_type = self._tallies.setdefault(_key(job), {})
        gpu_type = outcome.start.options.gpu_type
        before = by_type.get(gpu_type, NOTHING)
        by_type[gpu_type] = Tally(
            before.reached + outcome.reached,
            before.time_s + outcome.time_s,
            before.energy_j + outcome.energy_j,
            before.squares_j2 + outcome.energy_j**2,
        )
        if outcome.reached:
            self._open.remove(job.job_id)
            self._ended += 1
            spare = 1 - (ctx.now_s - job.submit_time_s) / self._limit_s
            self._patience = min(1.0, max(0.0, self._patience + STEP * spare))
        if self._ended >= self._next_solution:
            self._next_solution = math.ceil(self._ended * GROWTH)
            self._basis = Learnt(
                {key: dict(tallies) for key, tallies in self._tallies.items()},
                dict(self._submitted),
                ctx.now_s,
            )
            self._prices = None

    @override
    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """On the cheapest type, or on the next one where waiting would cost more."""
        types = cluster.types_for(job)
        if job.workload is None or len(types) == 1:
            return self._best_fit.place(ctx, job, cluster)
        tallies = self._tallies.get(_key(job), {})
        known = {
            index: tallies[cluster.gpu_types[index]]
            for index in types
            if tallies.get(cluster.gpu_types[index], NOTHING).is_known
        }
        for index in types:  # a type that it was hardly on is tried
            if index not in known and (there := self._on(ctx, job, cluster, index)):
                return there
        prices = self._find_prices(cluster)
        costs = {index: _cost(job, tally, prices, index) for index, tally in known.items()}
        ranked = _rank(costs, prices)
        times_s = {index: job.time_scale * t.time_s / t.reached for index, t in known.items()}
        slowest_s = max(times_s.values(), default=0.0)
        waited_s = ctx.now_s - job.submit_time_s
        for index in ranked:
            best = ranked[0]
            patience_s = max(0.0, times_s[index] - times_s[best])
            if costs[index] > (1 + SAME) * costs[best]:
                patience_s = slowest_s
            if index != best and waited_s < self._patience * patience_s:
                return ()
            if there := self._on(ctx, job, cluster, index):
                return there
        return ()

    @override
    def wake_s(self, ctx: Context) -> float:
        """Never: a job that waits for a type has its turn when something is given back."""
        return math.inf

    def _on(self, ctx: Context, job: Job, cluster: ClusterView, gpu_type: int) -> Placement:
        return self._best_fit.place(ctx, job, OneType(cluster, gpu_type))

    def _find_prices(self, cluster: ClusterView) -> Prices:
        """What follows from the basis of the last solution; kept until there is another one."""
        if self._prices is None:
            names, counts = cluster.gpu_types, _count_gpus(cluster)
            demands = [] if self._basis is None else _demands(self._basis, names)
            if self._basis is None or not demands:
                self._prices = (0.0,) * len(names)
            else:
                self._prices = assign(demands, counts).gpu_prices_w
        return self._prices

    @override
    def state_dict(self) -> dict[str, Any]:
        basis = self._basis
        return {
            "tallies": _tallies_as_json(self._tallies),
            "submitted": dict(self._submitted),
            "open": sorted(self._open),
            "ended": self._ended,
            "patience": self._patience,
            "next_solution": self._next_solution,
            "basis": basis and basis._replace(tallies=_tallies_as_json(basis.tallies))._asdict(),
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._tallies = _tallies_from_json(state["tallies"])
        self._submitted, self._open = dict(state["submitted"]), set(state["open"])
        self._ended, self._patience = state["ended"], state["patience"]
        self._next_solution = state["next_solution"]
        basis = state["basis"]
        self._basis = basis and Learnt(**basis | {"tallies": _tallies_from_json(basis["tallies"])})
        self._prices = None


class EnergyAwareConfig(PolicyConfig):
    """The GPU type on which a workload takes the least energy, as far as there are GPUs of it.

    Time and energy of each workload on each type are learnt from its jobs that ended; a type that
    it was hardly on is tried when it has room, and one that may have had bad luck again. A linear
    program divides the jobs that were submitted so far between the types; what it would save by a
    further GPU of a type is that type's price. Each job takes the type of the least energy plus the
    price of its GPU time; of types that are alike, the dearer. If that has no room, it waits for as
    long as it would take longer on the next one, or, where that one costs more, as on its slowest
    type. Jobs without a workload are placed by best fit. Where workloads differ, take a `select`
    that lets later jobs overtake a waiting one. It needs scipy.
    """

    kind: Literal["energy-aware"] = "energy-aware"
    policy = EnergyAware
    chooses_types: ClassVar[bool] = True
    plain = "the GPU type with the least energy for the job"
    completion_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Largest mean time from submission to end, s, to which patience is adapted: each job that
    takes longer shortens all waiting. Any if absent."""


class OneType(ClusterView):
    """A view of a cluster in which jobs may only run on one GPU type."""

    def __init__(self, cluster: ClusterView, gpu_type: int) -> None:
        self.gpu_types = cluster.gpu_types
        self.node_type = cluster.node_type
        self.capacity = cluster.capacity
        self.racks = cluster.racks
        self.deadlines_s = cluster.deadlines_s
        self.slowdowns = cluster.slowdowns
        self._cluster, self._types = cluster, (gpu_type,)

    @property
    @override
    def free(self) -> Ints:
        return self._cluster.free

    @property
    @override
    def changes(self) -> Ints:
        return self._cluster.changes

    @override
    def shared(self, node: int) -> Mapping[int, int]:
        return self._cluster.shared(node)

    @override
    def types_for(self, job: Job) -> tuple[int, ...]:
        return self._types

    @override
    def tightest_node(self, gpus: int, gpu_type: int) -> int | None:
        return self._cluster.tightest_node(gpus, gpu_type)

    @override
    def first_node(self, gpus: int, gpu_type: int) -> int | None:
        return self._cluster.first_node(gpus, gpu_type)


def _key(job: Job) -> str:
    return f"{job.workload}x{job.gpus}"


def _cost(job: Job, tally: Tally, prices: Prices, gpu_type: int) -> float:
    """Energy of a job on a type, with the price of its GPUs, J."""
    time_s = tally.time_s / tally.reached
    return tally.least_energy_j + prices[gpu_type] * job.gpus * time_s


def _rank(costs: Mapping[int, float], prices: Prices) -> list[int]:
    """Types by cost; of those that are alike, the one whose GPUs are scarce first."""
    least = min(costs.values(), default=0.0)
    alike = {index for index, cost in costs.items() if cost <= (1 + SAME) * least}
    return sorted(
        costs,
        key=lambda index: (
            index not in alike,
            -prices[index] if index in alike else costs[index],
            costs[index],
        ),
    )


def _count_gpus(cluster: ClusterView) -> list[int]:
    return [
        int(cluster.capacity[cluster.node_type == index].sum())
        for index in range(len(cluster.gpu_types))
    ]


def _demands(basis: Learnt, names: tuple[str, ...]) -> list[WorkloadDemand]:
    """What the workloads need that are known on some type."""
    demands = []
    for key, tallies in sorted(basis.tallies.items()):
        there = [tallies.get(name) for name in names]
        if not any(tally and tally.reached for tally in there):
            continue
        demands.append(
            WorkloadDemand(
                basis.submitted[key] / max(basis.elapsed_s, 1e-9),
                int(key.rpartition("x")[2]),
                tuple(t.time_s / t.reached if t and t.reached else math.inf for t in there),
                tuple(t.energy_j / t.reached if t and t.reached else 0.0 for t in there),
            )
        )
    return demands


def _tallies_as_json(tallies: Mapping[str, Mapping[str, Tally]]) -> dict[str, Any]:
    return {
        key: {name: list(tally) for name, tally in by_type.items()}
        for key, by_type in tallies.items()
    }


def _tallies_from_json(state: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Tally]]:
    return {
        key: {name: Tally(*tally) for name, tally in by_type.items()}
        for key, by_type in state.items()
    }
