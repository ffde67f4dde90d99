"""Checks of power before a run: what is not stated, what does not fit, what a cap never allows."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import InputError, Problem
from wattkeeper.policies.points.job import WHOLE, Job
from wattkeeper.policies.profile import BOUNDARY_WORDS, EnergyOf, Objective, Profile
from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.job_filter import FilteredJobs, Reason
from wattkeeper.scenarios.inputs.measured_power import reserved_power
from wattkeeper.scenarios.spec.sections.cluster import MixedCluster, UniformCluster
from wattkeeper.scenarios.spec.wording import count, count_verb
from wattkeeper.scenarios.spec.yaml_document import YamlDocument
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.node_states import PowerBudget
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.replay.backend import Profiles, Replay
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

ADVICE: Final[Mapping[EnergyOf, str]] = {
    "gpu": "leave energy_of out, and state idle power of GPUs",
    "node": "state energy_of: node, and as idle power that of an idle node over its GPUs",
    "facility": "state energy_of: facility, and as idle power the facility's share of a GPU",
}


class Kind(NamedTuple):
    """What the power of a job depends on; `reserved_w` as in `Job`."""

    workload: str | None
    gpus: int
    gpu_milli: int = WHOLE
    gpu_type: str | None = None
    reserved_w: float = 0.0


def check_cap(used: UsedCluster, document: YamlDocument) -> None:
    """Refuse a power cap that the idle cluster exceeds, or that cannot be kept.

    It cannot where jobs hold their GPUs for as long as the trace says: that spreads their energy
    over that time, whatever power that makes.

    Raises:
        InputError: It shows the sum.
    """
    cluster = used.spec
    cap_w, idle_w = cluster.power_cap_w, cluster.idle_power_w
    if cap_w is not None and used.recorded:
        what = "power_cap_w: a cap cannot be kept with occupancy: recorded; leave one of them out"
        raise InputError(f"{used.label}{what}", used.where(document, "power_cap_w"))
    if cap_w is not None and idle_w > cap_w:
        parts = " + ".join(
            f"{cluster.most_gpus(name)} x {cluster.power[name].idle_w:g} W ({name})"
            for name in cluster.gpu_types
        )
        what = (
            f"{used.label}power_cap_w: no job can ever start below {cap_w:g} W, for all GPUs "
            f"draw {parts} = {idle_w:g} W while they idle"
        )
        raise InputError(what, used.where(document, "power_cap_w"))


def check_busy_power(jobs: pa.Table, used: UsedCluster, document: YamlDocument) -> None:
    """Refuse GPU types of unstated power where jobs without a workload may run on them.

    Raises:
        InputError: It names the key that is missing.
    """
    cluster = used.spec
    if None not in cluster.busy_w.values():
        return
    jobs_by_type: Counter[str] = Counter()
    for kind, number in Counter(_kinds(jobs)).items():
        if kind.workload is None and not kind.reserved_w:
            for name in eligible_types(_job(kind), cluster):
                jobs_by_type[name] += number
    problems = []
    for name in cluster.gpu_types:
        if jobs_by_type[name] and cluster.power[name].busy_w is None:
            mixed = isinstance(used.stated, MixedCluster)
            keys = ("power", name, "busy_w") if mixed else ("busy_power_w",)
            what = (
                f"{used.label}cluster.{'.'.join(keys)} is missing: "
                f"{count(jobs_by_type[name], 'job')} without a workload may run on {name}, and "
                "their power comes from a model; say what one busy GPU draws, W"
            )
            problems.append(Problem(what, used.where(document, *keys)))
    if problems:
        raise InputError(problems)


def check_idle_power(used: UsedCluster, profiles: Profiles, document: YamlDocument) -> None:
    """Refuse GPUs that draw more while they idle than in any recorded training.

    Raises:
        InputError: It names the workload that draws most.
    """
    most: dict[str, tuple[float, str]] = {}
    for (workload, gpus, name), profile in profiles.items():
        busy_w = profile.most_power_w / gpus
        most[name] = max(most.get(name, (0.0, "")), (busy_w, workload))
    for name, (busy_w, workload) in most.items():
        idle_w = used.spec.power[name].idle_w if name in used.spec.power else 0.0
        if 0 < busy_w < idle_w:  # 0: nothing measured it
            mixed = isinstance(used.stated, MixedCluster)
            keys = ("power", name, "idle_w") if mixed else ("idle_power_w",)
            what = (
                f"{used.label}{'.'.join(keys)}: an idle {name} draws {idle_w:g} W, more than any "
                f"recorded training on it: at most {busy_w:g} W, of {workload!r}"
            )
            raise InputError(what, used.where(document, *keys))


def check_boundaries(
    used: UsedCluster,
    profiles: Profiles,
    jobs: pa.Table | None,
    places: Iterable[str],
    document: YamlDocument,
) -> None:
    """Refuse profiles whose energy is of something else than the power of their cluster.

    Energy of whole nodes can be replayed only by jobs that fill nodes of the recorded size: the
    power of what else is in a node is inside it.

    Args:
        used: The cluster.
        profiles: That are replayed there.
        jobs: Of a trace; None: jobs recur.
        places: Kinds of the placement policies.
        document: The scenario's file.

    Raises:
        InputError: It says which two do not fit, and what to state.
    """
    stated: EnergyOf = used.stated.energy_of or "gpu"
    where = used.where(document, "energy_of")
    for profile in profiles.values():
        if profile.measured and profile.energy_of != stated:
            raise InputError(
                f"{used.label}energy_of: the profile of {profile.workload!r} on {profile.gpus} x "
                f"{profile.gpu_type} holds energy of {BOUNDARY_WORDS[profile.energy_of]}, and the "
                f"power of this cluster is that of {BOUNDARY_WORDS[stated]}: "
                f"{ADVICE[profile.energy_of]}",
                where,
            )
    if stated == "gpu":
        return
    if stated == "facility" and used.spec.pue != 1:
        text = "pue: energy of the facility includes it already; leave it out"
        raise InputError(f"{used.label}{text}", used.where(document, "pue"))
    if any(power.busy_w is not None for power in used.spec.power.values()):
        key = "busy_power_w" if isinstance(used.stated, UniformCluster) else "power"
        text = f"busy power is modelled for GPUs, and energy_of is {stated}: leave it out"
        raise InputError(f"{used.label}{key}: {text}", used.where(document, key))
    if jobs is not None and jobs["workload"].null_count:
        text = f"energy_of: the power of {count(jobs['workload'].null_count, 'job')} without a "
        raise InputError(f"{used.label}{text}profile is that of GPUs: give all a workload", where)
    if "spread" in places:
        text = "place: spread fills nodes in part, and the energy of profiles is of whole nodes"
        raise InputError(f"{used.label}{text}", where)
    for profile in profiles.values():
        if fault := _fault_of_nodes(profile, used):
            raise InputError(f"{used.label}{fault}", where)


def _fault_of_nodes(profile: Profile, used: UsedCluster) -> str:
    """How the nodes of a cluster differ from those of a profile; empty if they do not."""
    recorded = profile.gpus // profile.nodes if profile.nodes else 0
    for group in used.spec.groups:
        replays = profile.measured and group.gpu_type == profile.gpu_type
        if replays and group.gpus_per_node != recorded:
            return (
                f"energy_of: the energy of {profile.workload!r} is of whole nodes with "
                f"{count(recorded, 'GPU')}, and those of the cluster have {group.gpus_per_node}"
            )
    return ""


class PowerCapCheck:
    """Finds jobs that a power cap never lets start, even on an idle cluster."""

    def __init__(self, cluster: ClusterSpec, profiles: Profiles) -> None:
        self._cluster = cluster
        # Never runs: only asked for the largest power of jobs.
        env = SimulationEnvironment()
        power = UnprofiledPower(cluster.busy_w)
        backend = Replay(env, profiles, NamedStreams(0), Objective(0.5), power)
        self._budget = PowerBudget(cluster, backend)
        self._known = {None, *(workload for workload, _, _ in profiles)}

    def reasons(self, filtered: FilteredJobs, jobs: pa.Table) -> list[Reason]:
        """Why jobs that were not rejected yet can never start; scripts may train the others.

        `jobs`: all of them, with the GPU types on which each may run in this cluster.
        """
        kind_by_row = _kinds(jobs)
        kinds = dict.fromkeys(kind_by_row[row] for row in filtered.rows.tolist())
        excess = {kind: self.explain_excess(kind) for kind in kinds if kind.workload in self._known}
        if not any(excess.values()):
            return []
        return [
            Reason(
                "above the power cap",
                np.array([bool(excess.get(kind)) for kind in kind_by_row]) & filtered.accepted,
                lambda rows: (
                    f"{count_verb(len(rows), 'need')} more power than "
                    f"cluster.power_cap_w, {self._cluster.power_cap_w:g} W"
                ),
                lambda row: f": {excess[kind_by_row[row]]}",
                ("raise cluster.power_cap_w",),
            )
        ]

    def explain_excess(self, kind: Kind) -> str:
        """The sum that keeps such a job from ever starting; empty if it can start."""
        cluster, job = self._cluster, _job(kind)
        held = job.gpus * job.gpu_milli / WHOLE
        sums = []
        for name in eligible_types(job, cluster):
            most_w = self._budget.most_w(job, name)
            if cluster.power_cap_w is None or self._budget.allows(job, name):
                return ""
            others_w = cluster.idle_power_w - held * cluster.power[name].idle_w
            sums.append((most_w + others_w, most_w, others_w))
        least_w, most_w, others_w = min(sums)
        return (
            f"{count(held, 'GPU')} at up to {most_w:g} W + the others idle at {others_w:g} W = "
            f"{least_w:g} W"
        )


def explain_first_excess(
    cluster: ClusterSpec, profiles: Profiles, jobs: pa.Table | None, recurring: Iterable[Kind]
) -> str:
    """Which job can never start below the cluster's cap, and the sum; empty if all can.

    Args:
        cluster: With its cap.
        profiles: That the jobs need.
        jobs: Of a trace; None: `recurring` are checked.
        recurring: What the power of recurring jobs depends on.
    """
    cap = PowerCapCheck(cluster, profiles)
    if jobs is None:
        named = {kind: f"workload {kind.workload!r}" for kind in recurring}
    else:
        rows = zip(_kinds(jobs), jobs["job_id"].to_pylist(), strict=True)
        named = {kind: f"job {job_id!r}" for kind, job_id in rows}
    for kind, name in named.items():
        if excess := cap.explain_excess(kind):
            return f"{name} needs {excess}"
    return ""


def check_starts(
    workloads: Iterable[tuple[str, int]],
    profiles: Profiles,
    used: UsedCluster,
    document: YamlDocument,
) -> None:
    """Refuse workloads, each on a number of GPUs, that can never start below the power cap.

    Raises:
        InputError: It shows the sum.
    """
    cap = PowerCapCheck(used.spec, profiles)
    for name, gpus in workloads:
        excess = cap.explain_excess(Kind(name, gpus))
        if excess:
            what = (
                f"{used.label}power_cap_w: workload {name!r} can never start below "
                f"{used.spec.power_cap_w:g} W: {excess}"
            )
            raise InputError(what, used.where(document, "power_cap_w"))


def eligible_types(job: Job, cluster: ClusterSpec) -> list[str]:
    """The GPU types that a job may run on and of which the cluster has enough."""
    names = [cluster.gpu_types[index] for index in cluster.types_allowed(job.gpu_type)]
    return [name for name in names if cluster.most_gpus(name) >= job.gpus]


def _kinds(jobs: pa.Table) -> list[Kind]:
    columns = [jobs[name].to_pylist() for name in Kind._fields[:-1]]
    return [*map(Kind, *columns, reserved_power(jobs) or repeat(0.0))]


def _job(kind: Kind) -> Job:
    workload, gpus, milli, gpu_type, reserved_w = kind
    return Job(
        "", "", 1, workload, gpus, 0.0, gpu_milli=milli, gpu_type=gpu_type, reserved_w=reserved_w
    )
