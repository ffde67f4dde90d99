"""The comparison on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from wattkeeper.scenarios.searches import SAVED_NOTE, saved_table
from wattkeeper.scenarios.usable import left_out, ran_on_any
from wattkeeper.sim.metrics import LAST

if TYPE_CHECKING:
    from rich.console import Console

    from wattkeeper.scenarios.run import Done
    from wattkeeper.scenarios.schema import Scenario
    from wattkeeper.scenarios.study import Study

SHOWN = {"energy_j": "energy", "time_s": "time", "cost": "cost", "jct_s": "job completion"}
"""Of jobs with profiles."""

QUEUE = {
    "cluster_energy_j": "cluster energy",
    "jct_s": "job completion",
    "p95_jct_s": "95th percentile",
    "queue_delay_s": "queue delay",
    "preemptions": "preemptions",
}
"""Of jobs that run for their recorded duration, so that only the queue can differ."""

ZOO = {"gpu_s_saved": "GPU time saved", "with_parent": "with parent", "mean_accuracy": "accuracy"}
"""Where there is a zoo."""

ZOO_NOTE = (
    "GPU time saved: of training, modelled from the coverage by the parent (warm_start.json); "
    "queries, which take GPU time too, are not subtracted. with parent: share of the trained "
    "models. accuracy: their mean, modelled."
)

SHARES = ("with_parent", "mean_accuracy")
"""Not compared with the baseline's."""

TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def show(console: Console, scenario: Scenario, done: Done) -> None:
    """Print the question, the comparison of variants, and what each workload gained."""
    console.print(f"[bold]{scenario.name}[/bold]  {escape(scenario.question)}")
    for trace in done.manifest["inputs"]:
        synthetic = trace["origin"] == "synthetic"
        warning = " - made by a model, measured by nobody" if synthetic else ""
        style = "bold yellow" if synthetic else "dim"
        console.print(
            f"{trace['kind']}: {trace['trace']} ({trace['origin']}{warning})", style=style
        )
    if scenario.rng == "published" and scenario.workload.kind == "trace":
        console.print("Seeds change nothing here: rng: published takes them from group names.")
    manifest = done.manifest
    for line in (*left_out(manifest["dropped_jobs"]), *ran_on_any(manifest["ignored_gpu_types"])):
        console.print(line, style="bold yellow")
    of_live = manifest.get("live", {})
    for line in (*_misnamed(of_live, done.summary["by"]["gpu_type"]), *_lost(of_live)):
        console.print(escape(line), style="bold yellow")
    if "saved" in done.summary:
        console.print(saved_table(done.summary, scenario.baseline))
        console.print(SAVED_NOTE, style="dim")
        return
    workloads = done.summary["by"]["workload"]
    shown = metrics_of(done)
    if workloads and "energy_j" not in shown:
        console.print("Nothing measured energy: only time is compared.", style="bold yellow")
    console.print(_overall(scenario, done, shown))
    if not workloads:
        _explain_queue(console, scenario, done)
    else:
        _explain(console, done)
    if _has_zoo(done):
        console.print(ZOO_NOTE, style="dim")
    if not workloads:
        return
    measured = "energy_j" in shown
    what, metric = ("Energy", "energy_j") if measured else ("Training time", "time_s")
    title = f"{what} of all jobs, learning included"
    console.print(_by_workload(scenario, workloads, metric, title))
    title = f"{what} of one job after learning: the last {LAST} recurrences of each group"
    console.print(_by_workload(scenario, workloads, f"last5_{metric}", title))


def metrics_of(done: Study) -> dict[str, str]:
    """The main metrics of a study, and how a table calls them."""
    workloads = done.summary["by"]["workload"]
    shown = dict(SHOWN if workloads else QUEUE)
    if not _preempts(done):
        shown.pop("preemptions", None)
    if workloads and not _knows_energy(done):
        del shown["energy_j"]
    if _has_zoo(done):
        shown.pop("p95_jct_s", None)
        shown |= ZOO
    return shown


def _misnamed(of_live: Mapping[str, Any], named: Collection[str]) -> Iterator[str]:
    """What to say where a scenario calls the devices of a live run something else.

    Args:
        of_live: As in the manifest.
        named: GPU types of the results.
    """
    if not of_live or of_live["devices"] == ["synthetic"]:  # all was rehearsed
        return
    devices = of_live["devices"] or ["cpu"]
    if not set(devices) & set(named):
        yield (
            f"It ran on {', '.join(devices)}; the scenario (cluster.gpu), and so the results, call "
            f"that {', '.join(named)}."
        )


def _lost(of_live: Mapping[str, Any]) -> Iterator[str]:
    """What to say on the terminal of attempts that were lost.

    Args:
        of_live: As in the manifest.
    """
    attempts = of_live.get("attempts", ())
    if not attempts:
        return
    causes = Counter(one["cause"] for one in attempts)
    last = attempts[-1]
    message = f": {last['message']}" if last["message"] else ""
    yield (
        f"{len(attempts)} attempt{'s' * (len(attempts) > 1)} lost: "
        f"{', '.join(f'{count} {cause}' for cause, count in sorted(causes.items()))}. "
        f"The last one, {last['job_id']} attempt {last['attempt']} of {last['variant']}, "
        f"{last['cause']}{message}. What each said is in "
        f"{of_live['folder']}/{last['variant']}/{last['seed']}/output"
    )


def _overall(scenario: Scenario, done: Done, shown: Mapping[str, str]) -> Table:
    seeds = len(scenario.all_seeds)
    title = f"All jobs, mean of {seeds} seeds" if seeds > 1 else "All jobs"
    if len(scenario.variants) > 1:
        title += f", against {scenario.baseline}"
        if seeds > 1:
            title += " [95 % interval]"
    table = Table(title=title)
    table.add_column("variant")
    for title in (*shown.values(), *(("regret", "gave up") if "cost" in shown else ())):
        table.add_column(title, justify="right", no_wrap=True)
    for name, variant in done.summary["variants"].items():
        metrics = variant["metrics"]
        baseline = variant["versus"]["baseline"]
        label = name if baseline in (name, scenario.baseline) else f"{name} (vs {baseline})"
        cells = [against(variant, name, metric) for metric in shown]
        if "cost" in shown:
            cells.append(_value(metrics["regret"]["mean"], "regret"))
            cells.append(f"{metrics['gave_up']['mean']:g} of {metrics['jobs']['mean']:g}")
        table.add_row(escape(label), *cells)
    return table


def _preempts(done: Study) -> bool:
    variants = done.summary["variants"].values()
    return any(variant["metrics"]["preemptions"]["mean"] for variant in variants)


def _knows_energy(done: Study) -> bool:
    variants = done.summary["variants"].values()
    return any(variant["metrics"]["energy_j"]["mean"] is not None for variant in variants)


def _has_zoo(done: Study) -> bool:
    return any("gpu_s_saved" in one["metrics"] for one in done.summary["variants"].values())


def _explain_queue(console: Console, scenario: Scenario, done: Done) -> None:
    """What the columns are where no job has a profile."""
    with_zoo = _has_zoo(done)
    modelled = getattr(scenario.workload, "durations", None) is not None
    time = "its recorded time" + " or that of workload.durations" * modelled
    time += ", less what a parent saves" * with_zoo
    tail = "" if with_zoo else " and 95th percentile"
    console.print(
        f"No job has a profile: each runs for {time}, on whatever type of GPU, at its modelled "
        f"power when busy. job completion: from submission to end, mean{tail}. queue delay: mean "
        "wait for GPUs, before the start and while preempted. 1 GJ = 277.8 kWh.",
        style="dim",
    )
    costs = scenario.cluster.preemption
    if not costs.checkpoint_s and not costs.restore_s and _preempts(done):
        console.print("Preemption costs no time here (cluster.preemption).", style="dim")


def _explain(console: Console, done: Done) -> None:
    """What the columns are, where a reader could take them for something else."""
    etas = {variant.get("objective", {}).get("eta") for variant in _variants(done)} - {None}
    eta = done.manifest["scenario"]["objective"]["eta"]
    console.print(
        f"energy and time: sums over all jobs. cost: eta * energy + (1 - eta) * largest power limit"
        f" * time (J), eta {eta:g}. regret: cost above the expected cost of the best configuration;"
        " luck can make it negative. job completion: mean, from submission to end.",
        style="dim",
    )
    if etas - {eta}:
        console.print("Costs under different eta are not compared.", style="dim")


def _variants(done: Done) -> list[dict[str, Any]]:
    return list(done.manifest["scenario"]["variants"].values())


def _by_workload(
    scenario: Scenario, workloads: Mapping[str, Any], metric: str, title: str
) -> Table:
    table = Table(title=title)
    table.add_column("workload", no_wrap=True)
    for name in scenario.variants:
        table.add_column(escape(name), justify="right")
    for workload, variants in workloads.items():
        cells = [
            against(variants[name], name, metric, with_value=False) for name in scenario.variants
        ]
        table.add_row(escape(workload), *cells)
    return table


def against(variant: Mapping[str, Any], name: str, metric: str, with_value: bool = True) -> str:
    """A value and how it differs from the baseline's, its interval on a line of its own."""
    if metric not in variant["metrics"]:
        return "-"
    shown = _value(variant["metrics"][metric]["mean"], metric)
    versus = variant["versus"]
    if metric in SHARES:
        return shown
    ratio, interval = versus[metric]["ratio"], versus[metric]["ci95"]
    if versus["baseline"] == name or ratio is None:
        return shown
    change = f"{_percent(ratio)} %"
    low, high = map(_percent, interval or (ratio, ratio))
    if low != high:
        change += f"\n[{low}, {high}]"
    return f"{shown} {change}" if with_value else change


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}"  # never -0.0


def _value(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    if metric == "preemptions":
        return f"{value:,.0f}"
    if metric in SHARES:
        return f"{100 * value:.1f} %" if metric == "with_parent" else f"{value:.4f}"
    if metric.endswith(("_s", "_s_saved")):
        unit, size = next((u, s) for u, s in TIMES if abs(value) >= s or s == 1)
        return f"{value / size:,.1f} {unit}"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.2f} {prefix}J"
    return f"{value:.1f} J"
