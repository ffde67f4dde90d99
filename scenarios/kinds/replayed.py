"""What the kinds share whose jobs are replayed from profiles: those that recur, and traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.scenarios.inputs.power_checks import check_boundaries, check_idle_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.kinds.kind import Clusters, WorkloadKind
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.cluster import Facility
from wattkeeper.scenarios.spec.sections.settings import LatenciesSection
from wattkeeper.scenarios.spec.sections.workload import (
    ProfileSource,
    RecurringWorkload,
    SyntheticSource,
    TraceWorkload,
)
from wattkeeper.scenarios.spec.variants import VariantSpec
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.sim.replay.latencies import AllLatencies, Latencies
from wattkeeper.traces.library import store
from wattkeeper.traces.trace import Trace

Names = frozenset[str]
Rows = Sequence[Mapping[str, Any]]


class ReplayedKind(WorkloadKind):
    """Jobs that are replayed from profiles, and in a live run those that scripts train."""

    def read_jobs(
        self, loaded: LoadedScenario, clusters: Clusters, profiles: Trace | None, trained: Names
    ) -> ScenarioInputs:
        """The jobs and the profiles that they need; workloads in `trained` need none.

        Raises:
            InputError: See `read`.
        """
        raise NotImplementedError

    @override
    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        scenario, document = loaded
        workload = cast("RecurringWorkload | TraceWorkload", scenario.workload)
        profiles = None
        if workload.profiles is not None:
            with locate_errors(document, "workload", "profiles"):
                beside = document.folder_of(("workload", "profiles"))
                profiles = _find_profiles(workload.profiles, beside)
        trained = scenario.live.workloads if live and scenario.live is not None else ()
        inputs = self.read_jobs(loaded, clusters, profiles, frozenset(trained))
        if workload.epochs_sd is not None:
            deviation = f"{workload.epochs_sd:g} (workload.epochs_sd)"
            spread = f"epochs of a run, lognormal with deviation {deviation}"
            inputs = inputs._replace(adjusted=(spread, *inputs.adjusted))
        for used in clusters:
            if live and used.stated.energy_of not in (None, "gpu"):
                text = "energy_of: a live run measures GPUs; leave it out"
                raise InputError(text, used.where(document, "energy_of"))
            places = [loaded.variants[name].policies.place.parts[0].kind for name in used.names]
            for name in used.variants:
                run = inputs.runs[name]
                check_boundaries(used, run.profiles, run.jobs, places, document)
            check_idle_power(used, inputs.runs[used.variants[0]].profiles, document)
        if scenario.latencies is None or live:
            return inputs
        assert profiles is not None  # checked by the schema
        runs = dict(inputs.runs)
        for used in clusters:
            for variant in used.variants:
                with locate_errors(document, "latencies"):
                    latencies, recorded_rows = _latencies_of(
                        scenario.latencies, profiles, runs[variant].profiles
                    )
                cluster = _with_preemption(used.spec, used.stated, recorded_rows)
                runs[variant] = runs[variant]._replace(latencies=latencies, cluster=cluster)
        return inputs._replace(runs=runs)

    @override
    def check_policies(self, variant: VariantSpec, run: RunInputs) -> None:
        if variant.zoo is None:
            return
        if not run.models.known:
            raise InputError(
                "zoo: the trace does not say which models its jobs train; import it with a format "
                "that does (modelkeeper)"
            )
        origins = [row.child.mutated_from for row in run.models.known.values()]
        if variant.policies.configure.parts[0].kind == "lineage" and not any(origins):
            raise PolicyError(
                "configure: lineage cannot run: the trace does not say of any model what it was "
                "mutated from (column mutated_from)",
                "configure",
            )
        absent = [name for name, row in run.models.known.items() if row.accuracy is None]
        if absent and variant.zoo.accuracy is None and not run.trained:
            raise InputError(
                f"zoo: the trace has no accuracy of {len(absent)} models (first: {absent[0]}); say "
                "what they reach from scratch (zoo.accuracy)"
            )


def fixed_batch_size(loaded: LoadedScenario) -> int | None:
    """The batch size that the baseline fixes for all jobs; None if it fixes no other than theirs.

    What is relative to run times (deadlines by slack, intervals) is so in all variants alike, so
    that they compare the same jobs.
    """
    chosen = loaded.variants[loaded.scenario.baseline].policies.configure.parts[-1]
    return chosen.batch_size if isinstance(chosen, FixedConfig) else None


def _find_profiles(source: ProfileSource, beside: Path) -> Trace:
    if isinstance(source, SyntheticSource):
        from wattkeeper.traces.generate.synthetic import generate

        return generate(source.synthetic, "synthetic")
    trace = store.find(source, beside)
    if trace.kind != "profiles":
        raise InputError(f"trace {trace.name!r} holds {trace.kind}; profiles are needed")
    return trace


def _latencies_of(
    stated: LatenciesSection | str, trace: Trace, profiles: Profiles
) -> tuple[AllLatencies, Rows]:
    """The latencies of each profile that is replayed, and the recorded rows that they are from.

    A text as `stated`: use the recorded ones.

    Raises:
        InputError: If recorded ones are asked for, and none were recorded.
    """
    if isinstance(stated, LatenciesSection):
        return dict.fromkeys(profiles, Latencies(**stated.model_dump())), ()
    latencies: dict[tuple[str, int, str], Latencies] = {}
    rows: list[Mapping[str, Any]] = []
    for row in trace.parameters.get("latencies", ()):
        key = row["workload"], row["gpus"], row["gpu_type"]
        if key in profiles:
            rows.append(row)
            latencies[key] = Latencies(*(float(row[name] or 0.0) for name in Latencies._fields))
    absent = [key for key in profiles if key not in latencies]
    if absent:
        workload, gpus, gpu_type = absent[0]
        raise InputError(
            f"trace {trace.name!r} has no recorded latencies of {workload!r} on {gpus} x "
            f"{gpu_type}: record it (wattkeeper record), or state them (latencies: {{start_s: 2}})"
        )
    return latencies, rows


def _with_preemption(cluster: ClusterSpec, stated: Facility, recorded: Rows) -> ClusterSpec:
    """The cluster with the longest recorded checkpoint and restore, if none is stated."""
    if not recorded or "preemption" in stated.model_fields_set:
        return cluster
    checkpoint_s, restore_s = (
        max(float(row[name] or 0.0) for row in recorded) for name in ("checkpoint_s", "restore_s")
    )
    return dataclasses.replace(cluster, checkpoint_s=checkpoint_s, restore_s=restore_s)
