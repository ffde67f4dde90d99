"""Jobs on the GPU types on which they take the least energy: `energy-aware`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field
from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.place._tightest import BestFit
from wattkeeper.policies.planning.assignment import WorkloadDemand, assign, check_solver
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
    """What the jobs of a workload that reached their target took on a GPU type.

    Attributes:
        jobs: Their number.
        time_s: Time of all, with all attempts, as profiled, s.
        energy_j: Energy of all, J.
        squares_j2: Sum of the squares of their energies, J^2.
    """

    jobs: int
    time_s: float
    energy_j: float
    squares_j2: float

    def add(self, time_s: float, energy_j: float) -> Tally:
        """With a further job."""
        return Tally(
            self.jobs + 1,
            self.time_s + time_s,
            self.energy_j + energy_j,
            self.squares_j2 + energy_j**2,
        )

    @property
    def mean_s(self) -> float:
        """Mean time of a job, s."""
        return self.time_s / self.jobs

    @property
    def mean_j(self) -> float:
        """Mean energy of a job, J."""
        return self.energy_j / self.jobs

    @property
    def least_j(self) -> float:
        """The energy of a job, if the mean so far is too large by `ERRORS` of its errors, J."""
        variance = max(0.0, self.squares_j2 / self.jobs - self.mean_j**2)
        return max(0.0, self.mean_j - ERRORS * math.sqrt(variance / (self.jobs - 1)))


NOTHING: Final = Tally(0, 0.0, 0.0, 0.0)

Tallies = dict[str, dict[str, Tally]]
"""By workload with its number of GPUs, and by GPU type."""


class Learnt(NamedTuple):
    """What prices are computed from.

    Attributes:
        tallies: What jobs took.
        submitted: Jobs by workload.
        elapsed_s: Time in which they were submitted, s.
    """

    tallies: Tallies
    submitted: dict[str, int]
    elapsed_s: float


class Choice(NamedTuple):
    """A GPU type that a job may take, once it has waited for better ones; s of its workload."""

    gpu_type: int
    patience_s: float


class EnergyAware(Place):
    """See `EnergyAwareConfig`."""

    def __init__(self, config: EnergyAwareConfig) -> None:
        check_solver()
        self._limit_s = math.inf if config.completion_s is None else config.completion_s
        self._best_fit = BestFit()
        self._tallies: Tallies = {}
        self._submitted: dict[str, int] = {}
        self._spent: dict[str, tuple[float, float]] = {}  # s and J of jobs that are not done
        self._ended, self._patience = 0, 1.0
        self._next_solution = 1
        self._basis: Learnt | None = None
        self._prices: tuple[float, ...] | None = None  # W a GPU by type, which the basis implies
        self._choices: dict[tuple[str, tuple[int, ...]], list[Choice]] = {}  # derived, too

    @override
    def on_submit(self, ctx: Context, job: Job) -> None:
        if job.workload is not None:
            key = _key(job)
            self._submitted[key] = self._submitted.get(key, 0) + 1
            self._spent[job.job_id] = (0.0, 0.0)

    @override
    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn what an attempt took, and from time to time what that says of prices."""
        job = outcome.start.job
        if job.job_id not in self._spent:
            return
        if math.isnan(outcome.energy_j):
            raise PolicyError("energy-aware learns from energies, and none is measured", "place")
        time_s, energy_j = self._spent[job.job_id]
        time_s, energy_j = time_s + outcome.time_s, energy_j + outcome.energy_j
        if not outcome.reached:
            self._spent[job.job_id] = time_s, energy_j
            return
        del self._spent[job.job_id]
        by_type = self._tallies.setdefault(_key(job), {})
        gpu_type = outcome.start.options.gpu_type
        by_type[gpu_type] = by_type.get(gpu_type, NOTHING).add(time_s, energy_j)
        self._ended += 1
        spare = 1 - (ctx.now_s - job.submit_time_s) / self._limit_s
        self._patience = min(1.0, max(0.0, self._patience + STEP * spare))
        self._choices.clear()
        if self._ended >= self._next_solution:
            self._next_solution = math.ceil(self._ended * GROWTH)
            tallies = {key: dict(tallies) for key, tallies in self._tallies.items()}
            self._basis, self._prices = Learnt(tallies, dict(self._submitted), ctx.now_s), None

    @override
    def place(self, ctx: Context, job: Job, cluster: ClusterView) -> Placement:
        """On the first of its types that has room and that it need not wait longer for."""
        types = cluster.types_for(job)
        if job.workload is None or len(types) == 1:
            return self._best_fit.place(ctx, job, cluster)
        key = _key(job)
        if (key, types) not in self._choices:
            self._choices[key, types] = self._rank(key, job.gpus, types, cluster)
        waited_s = ctx.now_s - job.submit_time_s
        for gpu_type, patience_s in self._choices[key, types]:
            if waited_s < self._patience * job.time_scale * patience_s:
                return ()
            of_type = job.replace(gpu_type=cluster.gpu_types[gpu_type])
            if there := self._best_fit.place(ctx, of_type, cluster):
                return there
        return ()

    @override
    def wake_s(self, ctx: Context) -> float:
        """Never: a job that waits for a type has its turn when something is given back."""
        return math.inf

    def _rank(
        self, key: str, gpus: int, types: tuple[int, ...], cluster: ClusterView
    ) -> list[Choice]:
        """The types of a workload: those that it was hardly on, then by cost.

        Of types that are alike, the one whose GPUs are dearer comes first.
        """
        there = self._tallies.get(key, {})
        tallies = {index: there.get(cluster.gpu_types[index], NOTHING) for index in types}
        untried = [index for index, tally in tallies.items() if tally.jobs < LEAST]
        known = {index: tally for index, tally in tallies.items() if tally.jobs >= LEAST}
        prices = self._find_prices(cluster)
        costs = {
            index: tally.least_j + prices[index] * gpus * tally.mean_s
            for index, tally in known.items()
        }
        most = (1 + SAME) * min(costs.values(), default=0.0)
        alike = sorted(
            (index for index in costs if costs[index] <= most),
            key=lambda index: (-prices[index], costs[index]),
        )
        others = sorted((index for index in costs if costs[index] > most), key=costs.__getitem__)
        slowest_s = max((tally.mean_s for tally in known.values()), default=0.0)
        choices = [Choice(index, 0.0) for index in untried]
        choices += [
            Choice(index, max(0.0, known[index].mean_s - known[alike[0]].mean_s)) for index in alike
        ]
        return choices + [Choice(index, slowest_s) for index in others]

    def _find_prices(self, cluster: ClusterView) -> tuple[float, ...]:
        if self._prices is None:
            names = cluster.gpu_types
            counts = np.bincount(cluster.node_type, cluster.capacity, len(names)).tolist()
            self._prices = (
                (0.0,) * len(names)
                if self._basis is None
                else assign(_demands(self._basis, names), counts).gpu_prices_w
            )
        return self._prices

    @override
    def state_dict(self) -> dict[str, Any]:
        basis = self._basis
        return {
            "tallies": _tallies_as_json(self._tallies),
            "submitted": dict(self._submitted),
            "spent": {job: list(self._spent[job]) for job in sorted(self._spent)},
            "ended": self._ended,
            "patience": self._patience,
            "next_solution": self._next_solution,
            "basis": basis and basis._replace(tallies=_tallies_as_json(basis.tallies))._asdict(),
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._tallies = _tallies_from_json(state["tallies"])
        self._submitted = dict(state["submitted"])
        self._spent = {
            job: (time_s, energy_j) for job, (time_s, energy_j) in state["spent"].items()
        }
        self._ended, self._patience = state["ended"], state["patience"]
        self._next_solution = state["next_solution"]
        basis = state["basis"]
        self._basis = basis and Learnt(**basis | {"tallies": _tallies_from_json(basis["tallies"])})
        self._prices = None
        self._choices.clear()


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


def _key(job: Job) -> str:
    return f"{job.workload}x{job.gpus}"


def _demands(basis: Learnt, names: tuple[str, ...]) -> list[WorkloadDemand]:
    """What the workloads need that ended on some type."""
    demands = []
    for key, tallies in sorted(basis.tallies.items()):
        there = [tallies.get(name) for name in names]
        demands.append(
            WorkloadDemand(
                basis.submitted[key] / max(basis.elapsed_s, 1e-9),
                int(key.rpartition("x")[2]),
                tuple(math.inf if tally is None else tally.mean_s for tally in there),
                tuple(0.0 if tally is None else tally.mean_j for tally in there),
            )
        )
    return demands


def _tallies_as_json(tallies: Tallies) -> dict[str, Any]:
    return {
        key: {name: list(tally) for name, tally in by_type.items()}
        for key, by_type in tallies.items()
    }


def _tallies_from_json(state: Mapping[str, Mapping[str, Any]]) -> Tallies:
    return {
        key: {name: Tally(*tally) for name, tally in by_type.items()}
        for key, by_type in state.items()
    }
