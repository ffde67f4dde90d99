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

NOTE: Final = (
    "work: epochs times parameters. time: of a CPU that nothing measures, CPU time; else that of "
    "the clock; with overhead: also CPU time of graphs, the choice of parents and transfers. final "
    "accuracy: on test images, mean over the networks. "
)


def savings(results: Sequence[RunResult], baseline: str) -> dict[str, Any]:
    """The savings of each variant against the baseline, seed by seed.

    Returns:
        By variant: the mean share saved of `SAVED`, of energy only if all of it was measured, and
        `accuracy_points`, the mean difference of the mean final accuracy in points of percent; each
        with its 95 % interval over seeds (of the paired differences) and the number of seeds.
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
            "accuracy_points": _mean_and_interval(
                [100 * (mine["accuracy"] - base["accuracy"]) for mine, base in pairs]
            )
        }
    return saved


def _mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    mean = math.fsum(values) / len(values)
    return {"mean": mean, "ci95": interval(values), "n": len(values)}


def savings_labels(summary: Mapping[str, Any]) -> dict[str, str]:
    """Labels of the savings in a summary, by key."""
    there: Mapping[str, Any] = next(iter(summary["saved"].values()), {})
    return {key: head for key, head in SAVED.items() if key in there}


def is_noise(saved: Mapping[str, Any]) -> bool:
    """Whether the interval over seeds includes 0."""
    return saved["ci95"] is not None and saved["ci95"][0] <= 0 <= saved["ci95"][1]


def savings_note(summary: Mapping[str, Any]) -> str:
    """Definitions of `savings_labels`."""
    if "energy_j" in savings_labels(summary):
        return f"{NOTE}energy: of the processor in training."
    return f"{NOTE}No meter measured the processor: energy is unknown."
