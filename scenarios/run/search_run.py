"""Searches for architectures that train for real: one run, and what the zoo saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.spec.schema import ArchitectureSearch
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.clock import Clock
from wattkeeper.sim.engine.rng import NamedStreams
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.tables import RunResult, collect
from wattkeeper.traces.arrow import replace_column

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

    from wattkeeper.live.search.processor import Processor
    from wattkeeper.live.search.training_log import TrainingRecord
    from wattkeeper.scenarios.spec.variants import RunSpec

SAVED: Final = {
    "work": "work",
    "epochs": "epochs",
    "time_s": "training time",
    "time_with_overhead_s": "time with overhead",
    "energy_j": "energy",
}
"""What a zoo shall save, by its key in the summary; energy where something measures it."""

NOTE: Final = (
    "work: epochs times parameters. time: of a CPU that nothing measures, CPU time; else that of "
    "the clock; with overhead: also CPU time of graphs, the choice of parents and transfers. final "
    "accuracy: on test images, mean over the networks. "
)

UNMEASURED: Final = ("cost", "regret", "last5_cost", "cluster_energy_j", "gpu_s_saved")

OF_ENERGY: Final = ("energy_j", "last5_energy_j", "energy_to_accuracy_j")


def processor(cluster: ClusterSpec) -> Processor:
    """What a search trains on here.

    Raises:
        EnvironmentLacks: If a library that training needs is absent; it says how to install it.
        InputError: If this machine has no such processor.
    """
    from importlib.util import find_spec

    absent = [name for name in ("torch", "safetensors", "numba", "sklearn") if not find_spec(name)]
    if absent:
        raise EnvironmentLacks(
            f"training for real needs {', '.join(absent)}: pip install 'wattkeeper[live,digits]'"
        )
    if cluster.gpus != 1:
        raise InputError(f"gpus: a search trains on one, not {cluster.gpus}")
    from wattkeeper.live.search.processor import processor_of

    return processor_of(cluster.gpu_types[0])


def logs(folder: Path, specs: Sequence[RunSpec]) -> list[TrainingRecord]:
    """The trainings that are over, of all runs."""
    from wattkeeper.live.search.search import log_of
    from wattkeeper.live.search.training_log import read

    return [one for spec in specs for one in read(log_of(folder, spec.variant, spec.seed))]


def about(folder: Path, specs: Sequence[RunSpec], cluster: ClusterSpec) -> dict[str, Any]:
    """What the manifest says of the trainings."""
    from wattkeeper.live.search.processor import is_unmeasured

    return {
        "folder": str(folder),
        "devices": list(cluster.gpu_types),
        "time": "CPU time" if is_unmeasured(cluster.gpu_types[0]) else "of the clock",
        "energy": sorted({one.energy_from for one in logs(folder, specs)}),
    }


def software_versions() -> dict[str, str]:
    """Of what trainings depend on besides."""
    return {name: version(name) for name in ("torch", "scikit-learn", "numba")}


def check_alone(cluster: ClusterSpec, workers: int) -> None:
    """Refuse processes whose trainings would run beside each other on what is measured.

    Raises:
        InputError: It says what to do.
    """
    if workers > 1 and processor(cluster).measured:
        raise InputError(
            f"a search on {cluster.gpu_types[0]} is measured, one training at a time: leave out "
            "--workers"
        )


def execute(
    spec: RunSpec, workload: ArchitectureSearch, hardware: ClusterSpec, folder: Path
) -> RunResult:
    """Run one variant with one seed; trainings that are over are not run again."""
    from wattkeeper.live.search.backend import InProcessBackend, NetworkSource, SearchZoo
    from wattkeeper.live.search.search import SearchPlan, SearchRun
    from wattkeeper.live.search.trainer import TrainingRule

    clock = Clock()
    training = workload.training
    plan = SearchPlan(workload.models, TrainingRule(**training.model_dump()))
    search = SearchRun(folder, spec.variant, spec.seed, plan, processor(hardware))
    backend = InProcessBackend(clock, search, training.batch_size, training.most_epochs)
    zoo = None
    configure = spec.policies.configure
    if spec.zoo is not None:  # what nobody would ask for need not be stored
        zoo = SearchZoo(search, stores=configure.kind != "none")
        if search.stores:
            search.warm_up(getattr(configure, "matcher", None))
    source = NetworkSource(tuple(search.arrivals))
    streams = NamedStreams(spec.seed)
    world = World(
        clock, Cluster(hardware), source, backend, spec.policies, spec.rules, streams, zoo
    )
    backend.listener = world
    world.run()
    ran = collect(spec.variant, spec.seed, world.recorder, source, hardware, {}, clock.events, zoo)
    return _measured(ran, backend.trained)


def _measured(ran: RunResult, trained: Sequence[TrainingRecord]) -> RunResult:
    """Results without what nobody measured, and with what was."""
    tables = dict(ran.tables)
    jobs, line = tables["jobs"], tables["timeline"]
    limits_w = pa.array([one.power_limit_w for one in trained], pa.float64())
    jobs = replace_column(jobs, "power_limit_w", limits_w)
    tables["jobs"] = replace_column(jobs, "replayed", pa.array(["live"] * len(jobs)))
    tables["timeline"] = replace_column(line, "power_w", pa.array(np.full(len(line), math.nan)))
    covered = [one.coverage for one in trained if one.parent is not None]
    measured = all(one.energy_j is not None for one in trained)
    absent = UNMEASURED if measured else (*UNMEASURED, *OF_ENERGY)
    metrics = ran.metrics | dict.fromkeys(absent, math.nan) | {
        "work": float(sum(one.work for one in trained)),
        "epochs": float(sum(one.epochs for one in trained)),
        "time_s": math.fsum(one.time_s for one in trained),
        "overhead_s": math.fsum(one.overhead_s for one in trained),
        "accuracy": math.fsum(one.accuracy for one in trained) / len(trained),
        "coverage": math.fsum(covered) / len(covered) if covered else math.nan,
    }  # fmt: skip
    by = ran.by | {"replayed": {"live": metrics}}
    return replace(ran, tables=tables, metrics=metrics, by=by, digest=digest_tables(tables))


def savings(results: Sequence[RunResult], baseline: str) -> dict[str, Any]:
    """What each variant saved against the baseline, seed by seed.

    Returns:
        By variant: the mean share saved of `SAVED`, of energy only if all of it was measured, and
        `accuracy_points`, the mean difference of the mean final accuracy in points of percent; each
        with its 95 % interval over seeds (Student's t on the paired differences) and the number of
        seeds.
    """
    measured = not any(math.isnan(result.metrics["energy_j"]) for result in results)
    names = [name for name in SAVED if name != "energy_j" or measured]
    by = {(result.variant, result.seed): _sums(result.metrics) for result in results}
    found: dict[str, Any] = {}
    for variant in dict.fromkeys(result.variant for result in results):
        if variant == baseline:
            continue
        pairs = [(by[variant, seed], by[baseline, seed]) for one, seed in by if one == variant]
        found[variant] = {
            name: mean_and_interval([1 - mine[name] / base[name] for mine, base in pairs])
            for name in names
        } | {
            "accuracy_points": mean_and_interval(
                [100 * (mine["accuracy"] - base["accuracy"]) for mine, base in pairs]
            )
        }
    return found


def _sums(metrics: Mapping[str, float]) -> dict[str, float]:
    return dict(metrics) | {"time_with_overhead_s": metrics["time_s"] + metrics["overhead_s"]}


def mean_and_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean, 95 % interval by Student's t, and number; no interval of a single value."""
    from scipy.stats import t  # comes with scikit-learn

    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return {"mean": mean, "ci95": None, "n": len(values)}
    half = float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return {"mean": mean, "ci95": [mean - half, mean + half], "n": len(values)}


def saved_heads(summary: Mapping[str, Any]) -> dict[str, str]:
    """What a summary says was saved, by its key, in words."""
    there: Mapping[str, Any] = next(iter(summary["saved"].values()), {})
    return {key: head for key, head in SAVED.items() if key in there}


def is_noise(saved: Mapping[str, Any]) -> bool:
    """Whether an interval over seeds includes that nothing was saved."""
    return saved["ci95"] is not None and saved["ci95"][0] <= 0 <= saved["ci95"][1]


def saved_note(summary: Mapping[str, Any]) -> str:
    """What the words of `saved_heads` mean."""
    if "energy_j" in saved_heads(summary):
        return f"{NOTE}energy: of the processor in training."
    return f"{NOTE}No meter measured the processor: energy is unknown."


def saved_table(summary: Mapping[str, Any], baseline: str) -> Table:
    """What `savings` found, for the terminal."""
    from rich.markup import escape
    from rich.table import Table

    several = any(saved["work"]["ci95"] for saved in summary["saved"].values())
    over = "95 % interval over seeds" if several else "one seed: no interval"
    table = Table(title=f"Saved against {escape(baseline)} \\[{over}]")
    heads = saved_heads(summary)
    for head in ("variant", *heads.values(), "final accuracy"):
        justify: JustifyMethod = "left" if head == "variant" else "right"
        table.add_column(head.replace(" ", "\n", 1), justify=justify, no_wrap=True)
    for name, saved in summary["saved"].items():
        cells = [_cell(saved[what], 100, " %") for what in heads]
        table.add_row(escape(name), *cells, _cell(saved["accuracy_points"], 1, " points"))
    return table


def _cell(value: Mapping[str, Any], factor: float, unit: str) -> str:
    digits = 1 if factor == 100 else 2
    shown = f"{factor * value['mean']:+.{digits}f}{unit}" + " ~" * is_noise(value)
    if value["ci95"] is None:
        return shown
    low, high = (f"{factor * bound:+.{digits}f}" for bound in value["ci95"])
    return f"{shown}\n[{low}, {high}]"
