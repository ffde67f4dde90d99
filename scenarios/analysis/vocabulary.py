"""Labels, units and notes of metrics, shared by terminal and page."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.parts import find_part
from wattkeeper.policies.registry import Point
from wattkeeper.scenarios.analysis.consumption import CLUSTER_ENERGY, describe_window, format_amount
from wattkeeper.scenarios.analysis.manifest import LiveReport, Manifest
from wattkeeper.scenarios.analysis.outside_window import describe_idle_end, describe_outside
from wattkeeper.scenarios.analysis.resolved.overrides import clusters_by_variant, describe_overrides
from wattkeeper.scenarios.analysis.resolved.policy_kinds import policy_kinds
from wattkeeper.scenarios.analysis.resolved.workload import section_of
from wattkeeper.scenarios.inputs.job_filter import describe_dropped, describe_ignored_types
from wattkeeper.scenarios.inputs.measured_energy import describe_measured
from wattkeeper.scenarios.inputs.profiled_jobs import describe_share
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.registry import METRICS
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH
from wattkeeper.traces.files.names import file_name

Unit = tuple[str, float]
"""Name and size of a unit."""

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

ELASTIC_METRICS: Final = (
    "goodput",
    "ettr",
    "useful_sample_j",
    "useful_sample_rent",
    "p99_downtime_s",
)
"""Metrics where there are elastic jobs."""

ZOO_NOTE = (
    "GPU time saved: of training, from the coverage by the parent (warm_start.json); "
    "queries, which take GPU time too, are not subtracted. with parent: share of the trained "
    "models. accuracy: their mean. GPU time and accuracy are modelled unless the training was real."
)

SHARES: Final = ("with_parent", "mean_accuracy")
"""Metrics that are not compared with the baseline's."""

TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
ENERGIES = (("TJ", 1e12), ("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3), ("J", 1.0))
SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def shown_metrics(summary: Json) -> tuple[str, ...]:
    """The metrics in which variants can differ."""
    if is_elastic(summary):
        return _shown_elastic(summary)
    profiled = bool(summary["by"]["workload"])
    hidden = set() if preempts(summary) else {"preemptions"}
    if profiled and not knows_energy(summary):
        hidden |= {"energy_j", "cost"}  # cost is then time alone
    further: tuple[str, ...] = ()
    if has_zoo(summary):
        hidden.add("p95_jct_s")
        further = ZOO_METRICS
    shown = PROFILED_METRICS if profiled else QUEUE_METRICS
    return tuple(metric for metric in (*shown, *further) if metric not in hidden)


def _shown_elastic(summary: Json) -> tuple[str, ...]:
    """Those of elastic jobs; when jobs end, only if that differs between variants."""
    every = [about["metrics"] for about in summary["variants"].values()]
    shown = [metric for metric in ELASTIC_METRICS if any(metric in own for own in every)]
    if len({metrics["jct_s"]["mean"] for metrics in every}) > 1:
        shown.append("jct_s")
    return tuple(shown)


def mean_of(variant: str, metric: str, summary: Json) -> float | None:
    """A metric of a variant, mean over seeds; None where the summary does not have it."""
    value: float | None = summary["variants"][variant]["metrics"].get(metric, {}).get("mean")
    return value


def read_means(summary: Json) -> dict[str, dict[str, Any]]:
    """The metrics of each variant, means over seeds; a value may be None."""
    return {
        name: {metric: figures["mean"] for metric, figures in about["metrics"].items()}
        for name, about in summary["variants"].items()
    }


def label_of(metric: str) -> str:
    """The head of the column of a metric."""
    return METRICS[metric].label or METRICS[metric].noun


def is_gain(metric: str) -> bool:
    """Whether more of a metric is better."""
    return METRICS[metric].better == "more"


def is_elastic(summary: Json) -> bool:
    """Whether there are elastic jobs."""
    return any("goodput" in about["metrics"] for about in summary["variants"].values())


def only_elastic(scenario: Json) -> bool:
    """Whether all jobs of a resolved scenario are elastic."""
    return section_of(scenario).replans and scenario["workload"].get("others") is None


def preempts(summary: Json) -> bool:
    """Whether any job was preempted."""
    return any(about["metrics"]["preemptions"]["mean"] for about in summary["variants"].values())


def knows_energy(summary: Json) -> bool:
    """Whether the energy of jobs is known."""
    variants = summary["variants"].values()
    return any(about["metrics"]["energy_j"]["mean"] is not None for about in variants)


def has_zoo(summary: Json) -> bool:
    """Whether there is a zoo."""
    return any("gpu_s_saved" in about["metrics"] for about in summary["variants"].values())


def own_baselines(variants: Json) -> dict[str, str]:
    """What each variant of a summary is compared with, where they have several baselines."""
    baselines = {name: about["versus"]["baseline"] for name, about in variants.items()}
    if len(set(baselines.values())) == 1:
        return {}
    return {name: baseline for name, baseline in baselines.items() if baseline != name}


def tradeoff_metrics(summary: Json) -> tuple[str, str, tuple[str, str]]:
    """The metrics of time, or goodput, and energy that policies trade off, and their labels."""
    if is_elastic(summary):
        return "goodput", "useful_sample_j", ("goodput, samples/s", "energy of a committed sample")
    if summary["by"]["workload"]:
        return "time_s", "energy_j", ("training time of all jobs", "energy of all jobs")
    return "jct_s", "cluster_energy_j", ("mean job completion time", "energy of the cluster")


def oracle_variants(scenario: Json) -> list[str]:
    """The variants of a resolved scenario that choose batch sizes or limits by foresight."""
    points: tuple[Point, ...] = ("configure", "tune")
    return [
        name
        for name in scenario["variants"]
        if any(
            _foresees(point, kind)
            for point in points
            for kind in policy_kinds(scenario, name, point)
        )
    ]


def _foresees(point: Point, kind: str) -> bool:
    config = find_part(point, kind)
    return config is not None and config.needs_foresight is True


def describe_profiles(manifest: Manifest) -> Iterator[str]:
    """What profiles stand for, which belongs before everything else."""
    if "profiled" in manifest:
        yield from describe_share(manifest["profiled"])


def cautions(manifest: Manifest, summary: Json) -> Iterator[str]:
    """Warnings that belong before the figures."""
    scenario = manifest["scenario"]
    if scenario["rng"] == "published" and section_of(scenario).is_log:
        yield "Seeds change nothing here: rng: published takes them from group names."
    sizes = (variant.get("workload") or {} for variant in scenario["variants"].values())
    if any("recurrences" in size for size in sizes):
        yield "Variants differ in their number of jobs: sums over jobs are not comparable."
    if "measured" in manifest:
        yield from describe_measured(manifest["measured"])
    yield from describe_outside(manifest, summary)
    yield from describe_idle_end(manifest, summary)
    yield from describe_dropped(manifest["dropped_jobs"], manifest.get("dropped_for", {}))
    yield from describe_ignored_types(manifest["ignored_gpu_types"])
    live = manifest.get("live")
    if live is not None:
        yield from _name_devices(live, summary["by"]["gpu_type"])
        if "synthetic" in live["energy"] and live["devices"] != ["synthetic"]:
            yield "Energy is that of a synthetic device: it was not measured."
        yield from _count_lost(live)
    yield from _count_unable(summary)
    if "saved" not in summary and summary["by"]["workload"] and not knows_energy(summary):
        yield "Nothing measured energy: only time is compared."


def _count_unable(summary: Json) -> Iterator[str]:
    """Counts jobs that never ended, where losses of nodes do not explain them."""
    for name, about in summary["variants"].items():
        metrics = about["metrics"]
        unable = metrics.get("unable_jobs", {}).get("mean")
        if unable and "node_losses" not in metrics:
            yield (
                f"{name}: {count(round(unable, 1), 'job')} never ended: nodes were too few until "
                "all elastic jobs ended."
            )


def _name_devices(live: LiveReport, gpu_types: Collection[str]) -> Iterator[str]:
    """Names the devices of a live run where the scenario gives them another GPU type."""
    if live["devices"] == ["synthetic"]:  # a rehearsal
        return
    devices = live["devices"] or ["cpu"]
    if not set(devices) & set(gpu_types):
        yield (
            f"It ran on {', '.join(devices)}; the scenario (cluster.gpu), and so the results, call "
            f"that {', '.join(gpu_types)}."
        )


def _count_lost(live: LiveReport) -> Iterator[str]:
    """Counts lost attempts by cause and quotes the last one; `live` is that of the manifest."""
    attempts = live.get("attempts", ())
    if not attempts:
        return
    causes = Counter(attempt["cause"] for attempt in attempts)
    last = attempts[-1]
    message = f": {last['message']}" if last["message"] else ""
    yield (
        f"{count(len(attempts), 'attempt')} lost: "
        f"{', '.join(f'{number} {cause}' for cause, number in sorted(causes.items()))}. "
        f"The last one, {last['job_id']} attempt {last['attempt']} of {last['variant']}, "
        f"{last['cause']}{message}. The output of each is in "
        f"{live['folder']}/{file_name(last['variant'])}/{last['seed']}/output"
    )


def notes(manifest: Manifest, summary: Json) -> Iterator[str]:
    """What variants override, and definitions of the shown metrics."""
    yield from describe_overrides(manifest["scenario"])
    if is_elastic(summary):
        yield from _define_elastic(manifest, summary)
    elif summary["by"]["workload"]:
        yield from _define_profiled(manifest)
    else:
        yield from _define_queue(manifest, summary)
    if has_zoo(summary):
        yield ZOO_NOTE


def currency_of_rent(scenario: Json) -> str:
    """The currency of rents of a resolved scenario, one for all variants; empty without any."""
    clusters = clusters_by_variant(scenario).values()
    return next((cluster["rent"]["currency"] for cluster in clusters if cluster.get("rent")), "")


def _define_elastic(manifest: Manifest, summary: Json) -> Iterator[str]:
    shown = shown_metrics(summary)
    others = " job completion: from submission to end, mean." * ("jct_s" in shown)
    money = currency_of_rent(manifest["scenario"])
    rent = f"; rent/1,000: rent of these nodes over every 1,000 samples, {money}" * (
        "useful_sample_rent" in shown
    )
    yield (
        "goodput: samples that elastic jobs committed a second, from their first pause to their "
        "end. ETTR: effective training time ratio, the share of that time in steps that were "
        "committed. energy/sample: energy of all nodes that jobs hold or wait for, over the "
        f"samples that they committed{rent}. p99 downtime: from a loss until training goes on, "
        f"what 99 % stay below.{others}"
    )


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


def describe_free_preemption(scenario: Json, summary: Json) -> Iterator[str]:
    """That preemption costs no time, if jobs are preempted and it does not."""
    costs = [own["preemption"] for own in clusters_by_variant(scenario).values()]
    free = not any(cost["checkpoint_s"] or cost["restore_s"] for cost in costs)
    if free and preempts(summary):
        yield "Preemption costs no time here (cluster.preemption)."


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


def metric_units(metric: str) -> Sequence[Unit]:
    """The units in which a metric is shown and their sizes in its SI unit, the largest first."""
    if metric.endswith(("_s", "_s_saved")):
        return TIMES
    if metric.endswith("_bytes"):
        return SIZES
    if metric in CLUSTER_ENERGY:
        return (("kWh", JOULES_PER_KWH),)
    if metric.endswith(("_j", "cost", "regret")):
        return ENERGIES
    return (("", 1.0),)


def choose_unit(values: Iterable[float], units: Sequence[Unit]) -> Unit:
    """The unit in which the largest of the values is at least 1."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return next((unit for unit in units if largest >= unit[1]), units[-1])


def format_value(value: float | None, metric: str) -> str:
    """A value in the unit that suits its size."""
    if value is None:
        return "-"
    match METRICS[metric].style if metric in METRICS else "":
        case "kWh":
            return format_amount(value, metric)
        case "count":
            return f"{value:,.0f}"
        case "share":
            return f"{100 * value:.1f} %"
        case "accuracy":
            return f"{value:.4f}"
        case "rate":
            return f"{four_digits(value)}/s"
        case "thousand":
            return four_digits(1000 * value)
    unit, size = choose_unit([value], metric_units(metric))
    if unit == "J":
        return f"{value:.1f} J"
    digits = 1 if unit in dict(TIMES) else 2
    return f"{value / size:,.{digits}f} {unit}".rstrip()


def four_digits(value: float) -> str:
    """A value with four digits, or with all of them before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"
