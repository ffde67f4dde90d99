"""Savings of the zoo of an architecture search against the baseline."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from wattkeeper.sim.results.run_result import RunResult
from wattkeeper.sim.results.statistics import interval

SAVED: Final = {
    "work": "work",
    "epochs": "epochs",
    "time_s": "training time",
    "time_with_overhead_s": "time with overhead",
    "energy_j": "energy",
}
"""Labels of savings by their key in the summary; energy only where it was measured."""

POINTS: Final = {"accuracy_points": "accuracy", "ensemble_points": "ensemble_accuracy"}
"""The accuracy that each difference in points is of; the ensemble's only where there is one."""

POINT_LABELS: Final = {"accuracy_points": "final accuracy", "ensemble_points": "ensemble"}

NOTE: Final = (
    "work: epochs times parameters, with those of parents that were tried and lost. time: of a CPU "
    "that nothing measures, CPU time; else that of the clock; with overhead: also CPU time of "
    "graphs, the choice of parents and transfers. final accuracy: on test images, mean over the "
    "networks. "
)

ENSEMBLE: Final = (
    "Cores count in work and time, not in accuracies. ensemble: accuracy of the mean of the "
    "members' class probabilities, on the same images. "
)


def savings(results: Sequence[RunResult], baseline: str) -> dict[str, Any]:
    """The savings of each variant against the baseline, seed by seed.

    Returns:
        By variant: the mean share saved of `SAVED`, of energy only if all of it was measured, and
        `POINTS`, mean differences of accuracies in points of percent; each with its 95 % interval
        over seeds (of the paired differences) and the number of seeds.
    """
    measured = not any(math.isnan(result.metrics["energy_j"]) for result in results)
    names = [name for name in SAVED if name != "energy_j" or measured]
    by = {
        (result.variant, result.seed): result.metrics
        | {"time_with_overhead_s": result.metrics["time_s"] + result.metrics["overhead_s"]}
        for result in results
    }
    saved: dict[str, Any] = {}
    for variant in dict.fromkeys(result.variant for result in results):
        if variant == baseline:
            continue
        pairs = [(by[variant, seed], by[baseline, seed]) for name, seed in by if name == variant]
        saved[variant] = {
            name: _mean_and_interval([1 - mine[name] / base[name] for mine, base in pairs])
            for name in names
        } | {
            name: _mean_and_interval([100 * (mine[key] - base[key]) for mine, base in pairs])
            for name, key in POINTS.items()
            if key in results[0].metrics
        }
    return saved


def _mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    mean = math.fsum(values) / len(values)
    return {"mean": mean, "ci95": interval(values), "n": len(values)}


def savings_labels(summary: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the savings in a summary, by key."""
    there: Mapping[str, Any] = next(iter(summary["saved"].values()), {})
    return {key: head for key, head in SAVED.items() if key in there}


def point_labels(summary: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the differences of accuracies in a summary, by key."""
    there: Mapping[str, Any] = next(iter(summary["saved"].values()), {})
    return {key: head for key, head in POINT_LABELS.items() if key in there}


def is_noise(saved: Mapping[str, Any]) -> bool:
    """Whether the interval over seeds includes 0."""
    return saved["ci95"] is not None and saved["ci95"][0] <= 0 <= saved["ci95"][1]


def savings_note(summary: Mapping[str, Any]) -> str:
    """Definitions of `savings_labels`."""
    note = NOTE + ENSEMBLE * ("ensemble_points" in point_labels(summary))
    if "energy_j" in savings_labels(summary):
        return f"{note}energy: of the processor in training."
    return f"{note}No meter measured the processor: energy is unknown."
