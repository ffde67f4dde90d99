"""What results of jobs show that are replayed, from profiles or for their recorded duration."""

from collections.abc import Iterator
from typing import Final

from typing_extensions import override

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.bill import Bill
from wattkeeper.scenarios.analysis.consumption import describe_window
from wattkeeper.scenarios.analysis.manifest import Manifest
from wattkeeper.scenarios.analysis.study import Study
from wattkeeper.scenarios.analysis.vocabulary import (
    Tradeoff,
    describe_free_preemption,
    format_value,
    has_zoo,
    is_profiled,
    knows_energy,
    preempts,
)
from wattkeeper.scenarios.document import blocks
from wattkeeper.scenarios.document.blocks import Cell, Chapter, Table, TableRow
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.words import name_of
from wattkeeper.scenarios.spec.wording import percent
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

LEAST_NOTE: Final = (
    "least energy: of the same jobs with the same luck, each workload divided between the GPU "
    "types with the mean completion of that variant, if no job ever waited and no type was busy "
    "for longer than the run took: the optimum of a linear program, which no placement can fall "
    "below but by chance, and which can seldom be reached."
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
    def chapters(self, study: Study) -> Iterator[Chapter]:
        return _compare_with_least(study.summary)

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


def _compare_with_least(summary: Json) -> Iterator[Chapter]:
    """A row for each variant, where the bound was computed."""
    compared = summary.get("types")
    if not compared:
        return
    rows = []
    for name, found in compared.items():
        above = found["above"]
        bounds = ", ".join(percent(bound) for bound in above["ci95"] or ())
        cells = [
            Cell((format_value(found["energy_j"], "energy_j"),)),
            Cell((format_value(found["jct_s"], "jct_s"),)),
            Cell((format_value(found["least_j"], "energy_j"),)),
            Cell((f"{percent(above['mean'])} %",), "", f"[{bounds}]" * bool(bounds)),
        ]
        rows.append(TableRow((name_of(name, list(summary["variants"])),), cells))
    heads = blocks.heads("variant", "energy of jobs", "job completion", "least energy", "above it")
    table = Table(heads, rows, caption=LEAST_NOTE)
    yield Chapter("types", ("Energy above the least possible by GPU type",), [table])
