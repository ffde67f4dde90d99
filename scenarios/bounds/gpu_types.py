"""The least energy at which the jobs of a run could have been divided between GPU types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import ScenarioError
from wattkeeper.policies.planning.assignment import WorkloadDemand, assign, check_solver
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.variants import DEFAULTS
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.results.statistics import interval

COLUMNS: Final = [
    *("workload", "gpus", "gpu_type", "reached_target"),
    *("submit_time_s", "finish_time_s", "time_s", "energy_j"),
]


class LeastEnergy(NamedTuple):
    """Energy of the training of a run, and the least at its mean completion; J and s."""

    energy_j: float
    least_j: float
    jct_s: float


def check_types(loaded: LoadedScenario, inputs: Mapping[str, RunInputs]) -> None:
    """Refuse the bound where policies choose more than a place, or energies are unknown.

    Raises:
        EnvironmentLacks: If scipy is absent.
        ScenarioError: It names the place in the scenario.
    """
    check_solver()
    where = loaded.document.where(("bound",))
    for name, variant in loaded.variants.items():
        for point in ("configure", "tune"):
            kind = getattr(variant.policies, point).kind
            if kind != DEFAULTS[point]:
                raise ScenarioError(
                    f"bound: types is of jobs as profiled, and {name!r} has {point}: {kind}", where
                )
        run = inputs[name]
        unknown = sorted({each.workload for each in run.profiles.values() if not each.measured})
        if unknown:
            raise ScenarioError(f"bound: the energy of {', '.join(unknown)} is not known", where)
        has_losses = run.cluster.losses is not None
        if not run.profiles or variant.zoo is not None or has_losses or run.trained:
            what = "bound: types needs jobs with profiles, no zoo, no losses, and a simulation"
            raise ScenarioError(what, where)


def find_least_energy(result: ClusterResult, inputs: RunInputs) -> LeastEnergy:
    """The least energy of the jobs of a run that ended, at its mean time of completion.

    A lower bound for all placements with that mean completion and the luck of the run: each
    workload is divided between the types on which it has a profile, no type is busy for longer than
    the run took, and nothing waits (`assign`).
    """
    jobs = result.tables["jobs"].select(COLUMNS)
    # A copy, which is aligned as arrow's grouping wants it.
    jobs = jobs.take(pc.indices_nonzero(pc.is_valid(jobs["workload"])))
    ended = jobs.filter(jobs["reached_target"])
    jct_s = pc.mean(pc.subtract(ended["finish_time_s"], ended["submit_time_s"])).as_py()
    span_s = pc.max(jobs["finish_time_s"]).as_py() - pc.min(jobs["submit_time_s"]).as_py()
    names = inputs.cluster.gpu_types
    demands = list(_demands(jobs, inputs.profiles, names, span_s))
    least_w = assign(demands, list(map(inputs.cluster.most_gpus, names)), jct_s).power_w
    return LeastEnergy(pc.sum(jobs["energy_j"]).as_py(), least_w * span_s, jct_s)


def _demands(
    jobs: pa.Table,
    profiles: Mapping[tuple[str, int, str], Profile],
    names: Sequence[str],
    span_s: float,
) -> Iterator[WorkloadDemand]:
    """What the jobs of each workload and width need by type.

    Chance is that of the run: all types are as far from their means as those on which jobs ran.
    """
    grouped = jobs.group_by(["workload", "gpus", "gpu_type"]).aggregate(
        [("reached_target", "sum"), ("time_s", "sum"), ("energy_j", "sum")]
    )
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in sorted(grouped.to_pylist(), key=itemgetter("workload", "gpus", "gpu_type")):
        found.setdefault((row["workload"], row["gpus"]), []).append(row)
    for (workload, gpus), rows in found.items():
        count = sum(row["reached_target_sum"] for row in rows)
        if not count:
            continue
        mean = {
            name: _expect(profiles[workload, gpus, name])
            for name in names
            if (workload, gpus, name) in profiles
        }
        expected_s, expected_j = (
            sum(row["reached_target_sum"] * mean[row["gpu_type"]][at] for row in rows)
            for at in range(2)
        )
        slower = sum(row["time_s_sum"] for row in rows) / expected_s
        dearer = sum(row["energy_j_sum"] for row in rows) / expected_j
        yield WorkloadDemand(
            count / span_s,
            gpus,
            tuple(slower * mean[name][0] if name in mean else math.inf for name in names),
            tuple(dearer * mean[name][1] if name in mean else 0.0 for name in names),
        )


def _expect(profile: Profile) -> tuple[float, float]:
    """Expected time (s) and energy (J) of a job as it is profiled: with the default knobs."""
    curve = profile.curves[profile.default_batch_size]
    time_s, energy_j = curve.epoch(curve.max_limit_w)
    epochs = curve.expected_epochs(profile.max_epochs)
    return epochs * time_s, epochs * energy_j


def compare_least_energy(
    results: Sequence[ClusterResult], inputs: Mapping[str, RunInputs]
) -> dict[str, Any]:
    """By variant: mean energy, least energy and completion, and how far it is above the least."""
    compared: dict[str, Any] = {}
    for name in dict.fromkeys(result.variant for result in results):
        found = [
            find_least_energy(result, inputs[name]) for result in results if result.variant == name
        ]
        above = [each.energy_j / each.least_j - 1 for each in found]
        compared[name] = {
            "energy_j": math.fsum(each.energy_j for each in found) / len(found),
            "least_j": math.fsum(each.least_j for each in found) / len(found),
            "jct_s": math.fsum(each.jct_s for each in found) / len(found),
            "above": {
                "mean": math.fsum(above) / len(above),
                "ci95": interval(above),
                "n": len(above),
            },
        }
    return compared
