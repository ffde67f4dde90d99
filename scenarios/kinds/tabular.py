"""A search for architectures on a recorded table, in the simulator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.found import PERCENTS, found_metric, summarise_found
from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.inputs.zoo_models import capacity_bytes
from wattkeeper.scenarios.kinds.kind import Clusters, WorkloadKind
from wattkeeper.scenarios.kinds.search import UNMEASURED, check_choices
from wattkeeper.scenarios.kinds.simulation import build_world, collect_results, streams_of
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.tabular import TabularWorkload
from wattkeeper.scenarios.spec.variants import RunSpec, VariantSpec
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.engine.zoo import SimulatedZoo, ZooSpec
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.backend import Replay
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.search.source import NetworkSource
from wattkeeper.sim.search.strategy import Space
from wattkeeper.sim.search.tabular import ReplayedTraining, TabularSearch
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.library import store
from wattkeeper.traces.models.network_table import NetworkTable

if TYPE_CHECKING:
    from wattkeeper.policies.json_types import Json
    from wattkeeper.policies.profile import Profile


SEEDS: Final = 1 << 63
"""Number of seeds of strategies."""


class Tabular(WorkloadKind):
    """Networks whose recorded trainings are replayed, as many at once as there are GPUs."""

    not_live: ClassVar[str] = (
        "workload.kind: a search on a recorded table is simulated only; leave out --live, or take "
        "kind: search, which trains"
    )

    @override
    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        workload, document = cast("TabularWorkload", loaded.scenario.workload), loaded.document
        with locate_errors(document, "workload", "table"):
            trace = store.find(workload.table, document.folder_of(("workload", "table")))
            if trace.kind != "networks":
                raise InputError(f"trace {trace.name!r} holds {trace.kind}; networks are needed")
        with locate_errors(document, "workload"):
            table = NetworkTable(trace.name, trace.tables, trace.parameters, workload.task)
            misfit = workload.strategy.find_misfit_in(Space(table.space), workload.models)
            if misfit:
                raise InputError(misfit)
        runs: dict[str, RunInputs] = {}
        for used in clusters:
            with locate_errors(document, *used.path, "gpu"):
                others = {*used.spec.gpu_types} - {table.gpu_type}
                if table.gpu_type is not None and others:
                    raise InputError(
                        f"gpu: {min(others)!r}, but {table.name} was recorded on {table.gpu_type!r}"
                    )
            runs |= dict.fromkeys(used.variants, RunInputs(used.spec, {}, table=table))
        return ScenarioInputs(runs, (trace,))

    @override
    def check_policies(self, variant: VariantSpec, run: RunInputs) -> None:
        strategy = cast("TabularWorkload", variant.workload).strategy
        check_choices(variant, strategy.explain_no_origins())
        if variant.zoo is not None and variant.zoo.accuracy is not None:
            raise InputError("zoo.accuracy: leave it out: the table has the accuracies")

    @override
    def execute(self, spec: RunSpec, inputs: RunInputs) -> ClusterResult:
        workload, variant = cast("TabularWorkload", spec.variant.workload), spec.variant
        table, streams = inputs.table, streams_of(spec, inputs)
        assert table is not None
        search = _begin(workload, table, streams)
        profiles: dict[tuple[str, int, str], Profile] = {}
        for gpu_type in inputs.cluster.gpu_types:
            profiles |= search.profiles(gpu_type)
        inputs = inputs._replace(profiles=profiles)
        env, zoo = SimulationEnvironment(), None
        power = unprofiled_power(inputs, variant.boundness)
        backend = Replay(env, profiles, streams, variant.rules.objective, power)
        if variant.zoo is not None and variant.policies.retain is not None:
            capacity = capacity_bytes(variant.zoo)
            zoo = SimulatedZoo(
                ZooSpec(capacity, search.known, search), variant.policies.retain, streams
            )
        source = NetworkSource(search, inputs.cluster.gpus)
        world = build_world(spec, inputs, env, streams, backend, source, zoo)
        world.run()
        if zoo is not None:  # policies saw validation accuracies
            numbers = np.array([done.number for done in zoo.done], dtype=np.int64)
            names = source.column("model", numbers).to_pylist()
            zoo.done = [
                done._replace(accuracy=search.trained[name].final_accuracy)
                for name, done in zip(names, zoo.done, strict=True)
            ]
        unmeasured = {profile.workload for profile in profiles.values()}
        ran = collect_results(spec, inputs, world, unmeasured)
        return _add_trainings(ran, search, workload.models)

    @override
    def add_to_summary(
        self, summary: Json, results: Sequence[ClusterResult], baseline: str
    ) -> None:
        summary["found"] = summarise_found(results)

    @override
    def list_modelled(
        self, inputs: ScenarioInputs, results: Sequence[ClusterResult]
    ) -> Iterator[str]:
        modelled = sum(int(result.metrics["modelled"]) for result in results)
        if modelled:
            trained = sum(int(result.metrics["jobs"]) for result in results)
            yield (
                f"epochs of {modelled:,} of {trained:,} trainings, from parents of which no "
                "recording is there (expected_saving in policies/matching/benefit.py), and their "
                "accuracies: as from scratch"
            )


KIND = Tabular()


def _begin(workload: TabularWorkload, table: NetworkTable, streams: RandomStreams) -> TabularSearch:
    """The search of a run, whose seed decides on proposals and on the recordings."""
    seed = int(streams.policy("search", "networks").integers(SEEDS))
    strategy = workload.strategy.begin(Space(table.space), workload.models, seed)
    recording = int(streams.policy("search", "recordings").integers(table.seeds))
    return TabularSearch(table, strategy, recording)


def _add_trainings(ran: ClusterResult, search: TabularSearch, models: int) -> ClusterResult:
    """Results with the metrics of trainings, and whether each of them was recorded."""
    tables = dict(ran.tables)
    jobs = tables["jobs"]
    trained = list(search.trained.values())
    pairs = zip(jobs["job_id"].to_pylist(), jobs["parent_model"].to_pylist(), strict=True)
    kinds = ["recorded" if search.find_recorded(*pair) else "modelled" for pair in pairs]
    tables["jobs"] = replace_column(jobs, "replayed", pa.array(kinds))
    covered: list[float] = []
    if "models" in tables:
        has_parent = tables["models"]["parent_model"].is_valid()
        covered = tables["models"].filter(has_parent)["coverage"].to_pylist()
    by = ran.by | {
        "replayed": {
            kind: _total([each for each in trained if each.modelled == (kind == "modelled")])
            for kind in sorted({*kinds})
        }
    }
    recorded = [each for each in trained if each.has_parent and not each.modelled]
    metrics = ran.metrics | dict.fromkeys(UNMEASURED, math.nan) | _total(trained)
    metrics |= {
        "overhead_s": math.fsum(jobs["overhead_s"].to_pylist()),
        "accuracy": _mean([each.final_accuracy for each in trained]),
        "coverage": _mean(covered),
        "modelled": float(sum(each.modelled for each in trained)),
        "recorded": float(len(recorded)),
        "recorded_work": math.fsum(each.work for each in recorded),
        "recorded_work_from_scratch": math.fsum(each.work_from_scratch for each in recorded),
        "best_accuracy": search.find_best(math.inf),
    }
    metrics |= {
        found_metric(percent): search.find_best(percent / 100 * models) for percent in PERCENTS
    }
    task = search.task
    tables["jobs"] = replace_column(tables["jobs"], "workload", pa.array([task] * len(jobs)))
    by = by | {"workload": {task: metrics}}
    return replace(ran, tables=tables, metrics=metrics, by=by, digest=digest_tables(tables))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _total(trained: Sequence[ReplayedTraining]) -> dict[str, float]:
    return {
        "jobs": float(len(trained)),
        "work": math.fsum(each.work for each in trained),
        "epochs": float(sum(each.epochs for each in trained)),
    }
