"""Pipeline-parallel jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.graph import schedule_graph
from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.profile import Profile
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.power_checks import check_starts
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs, SourceFile
from wattkeeper.scenarios.kinds.kind import SIMULATED_ONLY, Clusters, WorkloadKind
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.sections.pipeline import (
    PipelineJob,
    PipelineSource,
    PipelineWorkload,
    Schedule,
    ScheduleSection,
    StragglerModel,
    SyntheticPipelineSource,
)
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.scenarios.spec.yaml_document import YamlDocument, locate_errors
from wattkeeper.sim.engine.features.stragglers import DrawnStragglers, Slowdown, Stragglers
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.traces.generate.pipelines import generate_pipeline
from wattkeeper.traces.pipelines import PipelinePoints, read_pipeline, replayed_profile
from wattkeeper.traces.tables import jobs_table


class Pipeline(WorkloadKind):
    """Pipeline-parallel jobs, whose GPUs' clocks can be chosen by instruction."""

    not_live: ClassVar[str] = SIMULATED_ONLY.format(kind="pipeline")

    @override
    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        workload = cast("PipelineWorkload", loaded.scenario.workload)
        document = loaded.document
        points: dict[tuple[PipelineSource, Path], PipelinePoints] = {}
        tasks: list[tuple[PipelineTask, int]] = []
        for index, job in enumerate(workload.jobs):
            place = _path(job, index, "profile")
            key = job.profile or workload.profile, document.folder_of(place)
            with locate_errors(document, *place):
                if key not in points:
                    points[key] = _read_points(*key, workload.gpus_per_stage)
            profile = PipelineProfile(points[key].stages, workload.blocking_power_w)
            with locate_errors(document, *_path(job, index, "schedule")):
                microbatches = job.microbatches or workload.microbatches
                schedule = _schedule(job.schedule or workload.schedule, profile, microbatches)
                schedule_graph(schedule)  # raises if there is no such order
            gpus = schedule.ranks * workload.gpus_per_stage
            tasks.append((PipelineTask(profile, schedule), gpus))
        jobs = jobs_table(
            {
                "job_id": [job.name for job in workload.jobs],
                "submit_time_s": [job.submit_s for job in workload.jobs],
                "gpus": [gpus for _, gpus in tasks],
                "workload": [job.name for job in workload.jobs],
            }
        )
        stragglers = _stragglers(workload)
        runs: dict[str, RunInputs] = {}
        for used in clusters:
            _check_cluster(used, max(gpus for _, gpus in tasks), document)
            profiles = _profiles(workload, tasks, used.spec.gpu_types[0])
            check_starts([(name, gpus) for name, gpus, _ in profiles], profiles, used, document)
            run = RunInputs(used.spec, profiles, jobs, stragglers=stragglers)
            runs |= dict.fromkeys(used.variants, run)
        files = tuple(
            SourceFile(
                each.name,
                "pipeline",
                "csv" if each.inputs else "model",
                each.origin,
                each.inputs,
                digest_tables({"points": each.table}),
                each.parameters,
            )
            for each in points.values()
        )
        return ScenarioInputs(runs, rows=np.arange(len(workload.jobs)), files=files)


KIND = Pipeline()


def _path(job: PipelineJob, index: int, key: str) -> tuple[str, ...]:
    """The place of a key that a job may override."""
    if getattr(job, key) is None:
        return ("workload", key)
    return ("workload", "jobs", str(index), key)


def _read_points(source: PipelineSource, beside: Path, gpus: int) -> PipelinePoints:
    if isinstance(source, SyntheticPipelineSource):
        return generate_pipeline(source.synthetic, gpus)
    return read_pipeline(beside / source, gpus)


def _schedule(stated: Schedule, profile: PipelineProfile, microbatches: int) -> PipelineSchedule:
    """The schedule of a profile.

    Raises:
        InputError: If its stages cannot be spread over ranks.
    """
    section = ScheduleSection(kind=stated) if isinstance(stated, str) else stated
    stages = len(profile.stages)
    if stages % section.chunks:
        raise InputError(
            f"chunks: {section.chunks} on each rank, but the profile has {count(stages, 'stage')}; "
            "a multiple of the chunks is needed"
        )
    ranks = stages // section.chunks
    return PipelineSchedule(section.kind, ranks, microbatches, section.chunks, section.backwards)


def _profiles(
    workload: PipelineWorkload, tasks: Sequence[tuple[PipelineTask, int]], gpu_type: str
) -> Mapping[tuple[str, int, str], Profile]:
    profiles = {}
    for job, (task, gpus) in zip(workload.jobs, tasks, strict=True):
        iterations = job.iterations or workload.iterations
        profile = replayed_profile(job.name, gpu_type, gpus, task, iterations)
        profiles[job.name, gpus, gpu_type] = profile
    return profiles


def _stragglers(workload: PipelineWorkload) -> Mapping[str, Stragglers]:
    stated = workload.stragglers
    if isinstance(stated, StragglerModel):
        drawn = DrawnStragglers(stated.mean_gap_s, stated.mean_length_s, stated.mean_excess)
        return {job.name: drawn for job in workload.jobs}
    changes: dict[str, tuple[Slowdown, ...]] = {}
    for change in stated:
        slowdown = Slowdown(change.at_s, change.factor)
        changes[change.job] = (*changes.get(change.job, ()), slowdown)
    return changes


def _check_cluster(used: UsedCluster, gpus: int, document: YamlDocument) -> None:
    """Refuse clusters on which jobs cannot run."""
    cluster = used.spec
    if len(cluster.gpu_types) > 1:
        raise InputError(
            f"{used.label}the points of a pipeline are those of one GPU type; the cluster has "
            f"{', '.join(cluster.gpu_types)}",
            used.where(document),
        )
    if gpus > cluster.most_gpus(None):
        raise InputError(
            f"{used.label}a job asks for {count(gpus, 'GPU')}, the cluster has "
            f"{cluster.most_gpus(None)}",
            used.where(document, "gpus"),
        )
