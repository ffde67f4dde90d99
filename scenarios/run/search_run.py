"""Runs a search for architectures, whose networks are trained in this process."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.manifest import LiveReport
from wattkeeper.scenarios.inputs.clusters import search_processor
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.run.build import build_world, collect_results
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.files.private import check_own_tree

if TYPE_CHECKING:
    from wattkeeper.live.search.training_log import FinishedTraining

UNMEASURED: Final = ("cost", "regret", "last5_cost", "gpu_s_saved")

OF_ENERGY: Final = ("energy_j", "last5_energy_j", "energy_to_accuracy_j")


def finished_trainings(folder: Path, specs: Sequence[RunSpec]) -> list[FinishedTraining]:
    """The finished trainings of all runs.

    Raises:
        StoreError: If one is damaged, anything in the folder belongs to another user, or others may
            write it.
    """
    from wattkeeper.live.search.search import log_path
    from wattkeeper.live.search.training_log import read_trainings

    if os.path.lexists(folder):
        check_own_tree(folder, "--out")
    return [
        record
        for spec in specs
        for record in read_trainings(log_path(folder, spec.variant, spec.seed))
    ]


def report(folder: Path, specs: Sequence[RunSpec], cluster: ClusterSpec) -> LiveReport:
    """The part of the manifest on the trainings of a search."""
    from wattkeeper.live.search.processor import is_unmeasured

    return {
        "folder": str(folder),
        "devices": list(cluster.gpu_types),
        "time": "CPU time" if is_unmeasured(cluster.gpu_types[0]) else "of the clock",
        "energy": sorted({record.energy_from for record in finished_trainings(folder, specs)}),
    }


def training_versions() -> dict[str, str]:
    """Versions of the libraries that trainings depend on."""
    return {name: version(name) for name in ("torch", "scikit-learn", "numba")}


def check_workers(cluster: ClusterSpec, workers: int) -> None:
    """Refuse to measure trainings that run side by side on one processor.

    Raises:
        InputError: If there are several workers, and the processor is measured.
    """
    if workers > 1 and search_processor(cluster).measured:
        raise InputError(
            f"a search on {cluster.gpu_types[0]} is measured, one training at a time: leave out "
            "--workers"
        )


def execute(spec: RunSpec, inputs: RunInputs) -> ClusterResult:
    """Run one variant with one seed; trainings that are over are not run again."""
    from wattkeeper.live.search.backend import InProcessBackend, NetworkSource, SearchZoo
    from wattkeeper.live.search.search import SearchPlan, SearchRun
    from wattkeeper.live.search.trainer import TrainingRule

    workload, processor = inputs.search, search_processor(inputs.cluster)
    assert workload is not None
    training = workload.training
    plan = SearchPlan(workload.models, TrainingRule(**training.model_dump()))
    search = SearchRun(inputs.trainings, spec.variant, spec.seed, plan, processor)
    env = SimulationEnvironment()
    backend = InProcessBackend(env, search, training.batch_size, training.most_epochs)
    zoo = None
    configure = spec.policies.configure
    if spec.zoo is not None:  # no policy asks for models where parents are never chosen
        zoo = SearchZoo(search, stores=configure.kind != "none")
        if search.stores:
            search.warm_up(getattr(configure, "matcher", None))
    source = NetworkSource(tuple(search.candidates))
    world = build_world(spec, inputs, env, NamedStreams(spec.seed), backend, source, zoo)
    world.run()
    return _add_measurements(collect_results(spec, inputs, world), backend.trained)


def _add_measurements(ran: ClusterResult, trained: Sequence[FinishedTraining]) -> ClusterResult:
    """Results with the metrics of trainings, and NaN for what was not measured."""
    tables = dict(ran.tables)
    jobs, line = tables["jobs"], tables["timeline"]
    limits_w = pa.array([record.power_limit_w for record in trained], pa.float64())
    jobs = replace_column(jobs, "power_limit_w", limits_w)
    tables["jobs"] = replace_column(jobs, "replayed", pa.array(["live"] * len(jobs)))
    tables["timeline"] = replace_column(line, "power_w", pa.array(np.full(len(line), math.nan)))
    covered = [record.coverage for record in trained if record.parent is not None]
    measured = all(record.energy_j is not None for record in trained)
    absent = UNMEASURED if measured else (*UNMEASURED, *OF_ENERGY)
    account = ran.account.without_energy()
    metrics = (
        ran.metrics
        | account.metrics()
        | dict.fromkeys(absent, math.nan)
        | {
            "work": float(sum(record.work for record in trained)),
            "epochs": float(sum(record.epochs for record in trained)),
            "time_s": math.fsum(record.time_s for record in trained),
            "overhead_s": math.fsum(record.overhead_s for record in trained),
            "accuracy": math.fsum(record.accuracy for record in trained) / len(trained),
            "coverage": math.fsum(covered) / len(covered) if covered else math.nan,
        }
    )
    by = ran.by | {"replayed": {"live": metrics}}
    digest = digest_tables(tables)
    return replace(ran, tables=tables, metrics=metrics, by=by, account=account, digest=digest)
