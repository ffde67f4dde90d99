"""A search for architectures, whose networks are trained in this process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
from typing_extensions import override

from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError
from wattkeeper.policies.registry import find_config, policies
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.kinds.kind import Clusters, WorkloadKind
from wattkeeper.scenarios.kinds.simulation import build_world, collect_results
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.search import TrainedNetworks
from wattkeeper.scenarios.spec.variants import DEFAULTS, RunSpec, VariantSpec
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.schemas import JOBS
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.files.private import check_own_tree

if TYPE_CHECKING:
    from wattkeeper.live.search.processor import Processor
    from wattkeeper.live.search.search import SearchRun
    from wattkeeper.live.search.training_log import FinishedTraining
    from wattkeeper.policies.json_types import Json
    from wattkeeper.scenarios.analysis.manifest import LiveReport

Metrics = dict[str, float]

UNMEASURED: Final = ("cost", "regret", "last5_cost", "gpu_s_saved")

OF_ENERGY: Final = ("energy_j", "last5_energy_j", "energy_to_accuracy_j")


class Search(WorkloadKind):
    """Networks that are really trained, one after the other."""

    not_live: ClassVar[str] = "kind: a search trains for real as it is; leave out --live"
    is_simulated: ClassVar[bool] = False
    tries_parents: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ("torch", "scikit-learn", "numba")

    @override
    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        cluster = clusters[0].spec
        with locate_errors(loaded.document, "cluster"):
            _find_processor(cluster)
        return ScenarioInputs(dict.fromkeys(loaded.variants, RunInputs(cluster, {})))

    @override
    def check_policies(self, variant: VariantSpec, run: RunInputs) -> None:
        check_choices(variant, cast("TrainedNetworks", variant.workload).explain_no_origins())
        if variant.zoo is None:
            return
        retain = variant.policies.retain
        if variant.zoo.capacity_gb is not None or retain != find_config("retain", "keep-all"):
            what = "zoo: a search keeps all that it trained; leave out capacity_gb and retain"
            raise InputError(what)

    @override
    def begin(self, specs: Sequence[RunSpec], run: RunInputs, workers: int, ray: str | None) -> str:
        if ray is not None:
            raise InputError("a search (workload.kind) trains on this machine: leave out --ray")
        if workers > 1 and _find_processor(run.cluster).measured:
            raise InputError(
                f"a search on {run.cluster.gpu_types[0]} is measured, one training at a time: "
                "leave out --workers"
            )
        finished = len(_finished_trainings(run.trainings, specs))
        trainings = f"{count(finished, 'training')} in {run.trainings}"
        return f"Goes on with {trainings}." if finished else ""

    @override
    def execute(self, spec: RunSpec, inputs: RunInputs) -> ClusterResult:
        from wattkeeper.live.search.backend import InProcessBackend, SearchZoo
        from wattkeeper.live.search.search import SearchPlan, SearchRun
        from wattkeeper.live.search.trainer import TrainingRule
        from wattkeeper.sim.search.source import NetworkSource

        workload = cast("TrainedNetworks", spec.variant.workload)
        training, processor = workload.training, _find_processor(inputs.cluster)
        plan = SearchPlan(workload.plan, workload.start, TrainingRule(**training.model_dump()))
        search = SearchRun(inputs.trainings, spec.variant.name, spec.seed, plan, processor)
        finish = self.observe(search)
        env = SimulationEnvironment()
        backend = InProcessBackend(env, search, training.batch_size, training.most_epochs)
        zoo = None
        configure = spec.variant.policies.configure
        if spec.variant.zoo is not None:  # no policy asks for models where parents are never chosen
            zoo = SearchZoo(search, stores=configure.kind != "none")
            if search.stores:
                search.warm_up(getattr(configure.parts[0], "matcher", None))
        source = NetworkSource(search)
        world = build_world(spec, inputs, env, NamedStreams(spec.seed), backend, source, zoo)
        world.run()
        ran = _add_measurements(collect_results(spec, inputs, world), backend.trained)
        return _merge_metrics(ran, finish(backend.trained))

    def observe(self, search: SearchRun) -> Callable[[Sequence[FinishedTraining]], Metrics]:
        """Observe the trainings of a run; gives its further metrics when it is over."""
        return lambda trained: {}

    @override
    def report(self, specs: Sequence[RunSpec], run: RunInputs) -> LiveReport | None:
        from wattkeeper.live.search.processor import is_unmeasured

        trained = _finished_trainings(run.trainings, specs)
        types = list(run.cluster.gpu_types)
        return {
            "folder": str(run.trainings),
            "devices": types,
            "time": "CPU time" if is_unmeasured(types[0]) else "of the clock",
            "energy": sorted({record.energy_from for record in trained}),
        }

    @override
    def add_to_summary(
        self, summary: Json, results: Sequence[ClusterResult], baseline: str
    ) -> None:
        from wattkeeper.scenarios.analysis.savings import savings

        summary["saved"] = savings(results, baseline)


KIND = Search()


def check_choices(variant: VariantSpec, no_origins: str) -> None:
    """Refuse policies that choose what networks of a search do not have.

    `no_origins`: why no network has an origin; empty if any has.

    Raises:
        PolicyError: If there is one.
    """
    tune = variant.policies.tune.kind
    if tune != DEFAULTS["tune"]:
        what = f"tune: {tune} chooses power limits, which a search does not set; leave tune out"
        raise PolicyError(what, "tune")
    configure = variant.policies.configure
    default = find_config("configure", DEFAULTS["configure"])
    chosen = configure.parts[-1]
    if no_origins and any(part.kind == "lineage" for part in configure.parts):
        what = (
            f"configure: lineage starts from the network that another was derived from, but "
            f"{no_origins}; take another policy"
        )
        raise PolicyError(what, "configure")
    if not chosen.sets_parent and chosen != default:
        parents = (kind for kind, config in policies("configure").items() if config.sets_parent)
        what = (
            f"configure: {chosen.kind} chooses a batch size, but all networks of a search are "
            f"trained by one rule; allowed: {', '.join(parents)}"
        )
        raise PolicyError(what, "configure")


def _finished_trainings(folder: Path, specs: Sequence[RunSpec]) -> list[FinishedTraining]:
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
        for record in read_trainings(log_path(folder, spec.variant.name, spec.seed))
    ]


def _find_processor(cluster: ClusterSpec) -> Processor:
    """The processor of this host that a search trains on.

    Raises:
        EnvironmentLacks: If a library that training needs is absent; it says how to install it.
        InputError: If this machine has no such processor.
    """
    absent = [name for name in ("torch", "safetensors", "numba", "sklearn") if not find_spec(name)]
    if absent:
        raise EnvironmentLacks(
            f"training for real needs {', '.join(absent)}: pip install 'wattkeeper[live,digits]'"
        )
    if cluster.gpus != 1:
        raise InputError(f"gpus: a search trains on one, not {cluster.gpus}")
    from wattkeeper.live.search.processor import find_processor

    return find_processor(cluster.gpu_types[0])


def _add_measurements(ran: ClusterResult, trained: Sequence[FinishedTraining]) -> ClusterResult:
    """Results with the metrics of trainings, and NaN for what was not measured."""
    tables = dict(ran.tables)
    jobs, line = tables["jobs"], tables["timeline"]
    limits_w = pa.array([record.power_limit_w for record in trained], pa.float64())
    jobs = replace_column(jobs, "power_limit_w", limits_w)
    tables["jobs"] = replace_column(jobs, "replayed", pa.array(["live"] * len(jobs)))
    if any(record.trial for record in trained):
        tables["jobs"] = _add_trials(tables["jobs"], trained)
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
            "work": float(sum(record.total_work for record in trained)),
            "epochs": float(sum(record.total_epochs for record in trained)),
            "time_s": math.fsum(record.total_time_s for record in trained),
            "overhead_s": math.fsum(record.overhead_s for record in trained),
            "accuracy": math.fsum(record.accuracy for record in trained) / len(trained),
            "coverage": math.fsum(covered) / len(covered) if covered else math.nan,
        }
    )
    digest = digest_tables(tables)
    return replace(ran, tables=tables, metrics=metrics, account=account, digest=digest)


def _add_trials(jobs: pa.Table, trained: Sequence[FinishedTraining]) -> pa.Table:
    """Jobs with what trials of parents cost, which is part of their epochs, time and energy."""
    trials = [record.trial for record in trained]
    columns: dict[str, list[float | None]] = {
        "trial_epochs": [trial.epochs if trial else 0 for trial in trials],
        "trial_time_s": [trial.time_s if trial else 0.0 for trial in trials],
        "trial_energy_j": [trial.energy_j if trial else 0.0 for trial in trials],
    }
    for name, values in columns.items():
        jobs = jobs.append_column(name, pa.array(values, JOBS.field(name).type))
    return jobs.select([name for name in JOBS.names if name in jobs.column_names])


def _merge_metrics(ran: ClusterResult, further: Metrics) -> ClusterResult:
    """Results with further metrics, which are those of real trainings as well."""
    metrics = ran.metrics | further
    return replace(ran, metrics=metrics, by=ran.by | {"replayed": {"live": metrics}})
