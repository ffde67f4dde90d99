"""What results of jobs show that are replayed, from profiles or for their recorded duration."""

from collections.abc import Iterator
from typing import Final

from typing_extensions import override

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.consumption import describe_window
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.vocabulary import (
    Tradeoff,
    describe_free_preemption,
    has_zoo,
    is_profiled,
    knows_energy,
    preempts,
)
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.sim.cluster_results.accounting import ENERGY

PROFILED_METRICS: Final = ("energy_j", "time_s", "cost", "jct_s")
"""Metrics where jobs have profiles."""

QUEUE_METRICS: Final = (
    "cluster_energy_j",
    "jct_s",
    "p95_jct_s",
    "queue_delay_s",
    "makespan_s",
    "preemptions",
)
"""Metrics where jobs run for their recorded duration, so that only the queue differs."""

ZOO_METRICS: Final = ("gpu_s_saved", "with_parent", "mean_accuracy")
"""Further metrics where there is a zoo."""

ZOO_NOTE: Final = (
    "GPU time saved: of training, from the coverage by the parent (warm_start.json); "
    "queries, which take GPU time too, are not subtracted. with parent: share of the trained "
    "models. accuracy: their mean. GPU time and accuracy are modelled unless the training was real."
)


class ReplayedPresenter(Presenter):
    """See the module."""

    @override
    def metrics(self, summary: Json) -> tuple[str, ...]:
        hidden = set() if preempts(summary) else {"preemptions"}
        if is_profiled(summary) and not knows_energy(summary):
            hidden |= {"energy_j", "cost"}  # cost is then time alone
        further: tuple[str, ...] = ()
        if has_zoo(summary):
            hidden.add("p95_jct_s")
            further = ZOO_METRICS
        shown = PROFILED_METRICS if is_profiled(summary) else QUEUE_METRICS
        return tuple(metric for metric in (*shown, *further) if metric not in hidden)

    @override
    def tradeoff(self, summary: Json) -> Tradeoff:
        if is_profiled(summary):
            labels = "training time of all jobs", "energy of all jobs"
            return Tradeoff("time_s", "energy_j", labels)
        return Tradeoff("jct_s", ENERGY, ("mean job completion time", "energy of the cluster"))

    @override
    def define_metrics(self, manifest: Manifest, summary: Json) -> Iterator[str]:
        if is_profiled(summary):
            yield from _define_profiled(manifest)
        else:
            yield from _define_queue(manifest, summary)
        if has_zoo(summary):
            yield ZOO_NOTE

    @override
    def metric_of_jobs(self, scenario: Json, summary: Json, bill: Bill) -> str:
        """See `Presenter`.

        Of jobs with profiles the cost by eta: energy alone at 1, time alone at 0; GPU time that a
        zoo saves; of other jobs the energy of the cluster, or their completion time where variants
        differ only in scheduler and placement.
        """
        if is_profiled(summary):
            return _choose_profiled(scenario, summary)
        if has_zoo(summary):
            return "gpu_s_saved"
        return ENERGY if ENERGY in bill.amounts and _varies_power(scenario) else "jct_s"

    @override
    def warn(self, summary: Json) -> Iterator[str]:
        if is_profiled(summary) and not knows_energy(summary):
            yield "Nothing measured energy: only time is compared."


def _define_queue(manifest: Manifest, summary: Json) -> Iterator[str]:
    with_zoo = has_zoo(summary)
    scenario = manifest["scenario"]
    time = "its recorded time"
    time += " or that of workload.durations" * ("durations" in scenario["workload"])
    time += ", less what a parent saves" * with_zoo
    tail = "" if with_zoo else " and 95th percentile"
    power = "its measured or modelled" if "measured" in manifest else "its modelled"
    yield (
        f"No job has a profile: each runs for {time}, on whatever type of GPU, at {power} "
        f"power when busy. job completion: from submission to end, mean{tail}. queue delay: mean "
        "wait for GPUs, before the start and while preempted. makespan: from the first submission "
        "to the last end. cluster energy: of all GPUs over the window of "
        f"{describe_window(manifest)}."
    )
    yield from describe_free_preemption(scenario, summary)


def _define_profiled(manifest: Manifest) -> Iterator[str]:
    scenario = manifest["scenario"]
    variants = scenario["variants"].values()
    etas = {variant.get("objective", {}).get("eta") for variant in variants} - {None}
    eta = scenario["objective"]["eta"]
    yield (
        f"energy and time: sums over all jobs of a run. cost: eta * energy + (1 - eta) * largest "
        f"power limit * time (J), eta {eta:g}. regret: cost of all jobs of a run above the least "
        "expected cost of each, in the best configuration of its profile, whatever the variant; "
        "by chance it can be negative. job completion: mean, from submission to end."
    )
    if etas - {eta}:
        yield "Costs under different eta are not compared."


def _choose_profiled(scenario: Json, summary: Json) -> str:
    if not knows_energy(summary):
        return "time_s"
    usual = scenario["objective"]["eta"]
    etas = {
        (variant.get("objective") or {}).get("eta", usual)
        for variant in scenario["variants"].values()
    }
    if len(etas) > 1:
        return "energy_j"
    return {0: "time_s", 1: "energy_j"}.get(etas.pop(), "cost")


def _varies_power(scenario: Json) -> bool:
    """Whether variants differ in more than their schedulers and placement."""
    for variant in scenario["variants"].values():
        if variant.get("cluster") or variant.get("workload"):
            return True
        if set(variant.get("policies") or {}) - {"select", "place"}:
            return True
    return False
