"""Runs a search for architectures, whose networks are trained in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.clusters import search_processor
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
    from wattkeeper.live.search.training_log import TrainingRecord
    from wattkeeper.scenarios.spec.variants import RunSpec

UNMEASURED: Final = ("cost", "regret", "last5_cost", "cluster_energy_j", "gpu_s_saved")

OF_ENERGY: Final = ("energy_j", "last5_energy_j", "energy_to_accuracy_j")


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
    if workers > 1 and search_processor(cluster).measured:
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
    search = SearchRun(folder, spec.variant, spec.seed, plan, search_processor(hardware))
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
