"""Small worlds for tests: profiles, jobs, clusters, and strategies that draw them at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.support.slowed import Change, SlowedBackend
from wattkeeper.policies import parts, registry
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.points.job import JOB_ATTRIBUTES, Job
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.policies.registry import Point, PolicyConfig, find_config, policies
from wattkeeper.scenarios.contract.scripted import GPU, NEVER, SAMPLES, example, profile
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.cluster.losses import RunLosses
from wattkeeper.sim.cluster_results.columns import (
    attempt_columns,
    decision_columns,
    recorded_columns,
)
from wattkeeper.sim.cluster_results.timeline import Timeline, timeline
from wattkeeper.sim.engine.features.stragglers import Stragglers
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.engine.sources import Source, TraceSource
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.engine.world import ElasticParts, RunParts, World
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.signals import SignalSource
from wattkeeper.sim.kernel.streams import NamedStreams, RandomStreams
from wattkeeper.sim.replay.backend import Occupancy, Profiles, Profiling, Replay
from wattkeeper.sim.replay.latencies import NO_LATENCIES, Latencies
from wattkeeper.sim.replay.unprofiled import LimitModel, UnprofiledPower
from wattkeeper.sim.results.table_keeper import ALL_ROWS
from wattkeeper.traces.schema import JOBS
from wattkeeper.traces.tables import jobs_table

OTHER_GPU = "A40"

DEFAULTS: dict[Point, str] = {
    "configure": "fixed",
    "select": "fifo",
    "place": "first-fit",
    "tune": "max-power",
}


def steady(
    epochs: float = 5.0, epoch_s: float = 2.0, workload: str = "cnn", **other: Any
) -> Profile:
    """One batch size, always the same number of epochs of whole seconds at the highest limit."""
    return profile(workload, runs={32: (epochs,)}, epoch_s=epoch_s, **other)


def by_job(*known: Profile) -> Profiles:
    """Profiles as the replay backend looks them up."""
    return {(p.workload, p.gpus, p.gpu_type): p for p in known}


def trace(jobs: Iterable[Job]) -> TraceSource:
    """The source that submits these jobs; it counts recurrences by itself."""
    listed = list(jobs)
    columns = {
        name: pa.array([getattr(one, name) for one in listed], JOBS.field(name).type)
        for name in JOBS.names
        if name in JOB_ATTRIBUTES
    }
    for name in ("duration_s", "estimate_s", "deadline_s", "recorded_start_s"):
        values = [getattr(one, name) for one in listed]
        column = "start_time_s" if name == "recorded_start_s" else name
        columns[column] = pa.array(values, pa.float64(), from_pandas=True)
    models = {one.job_id: one.model for one in listed if one.model is not None}
    reserved_w = [one.reserved_w for one in listed]
    return TraceSource(jobs_table(columns), models, reserved_w if any(reserved_w) else ())


def chosen(**configs: PolicyConfig | str) -> PolicySet:
    """Policies by decision point: configs, or kinds without settings; the others do nothing."""
    built: dict[str, PolicyConfig] = {}
    for point, kind in DEFAULTS.items():
        config = configs.pop(point, kind)
        if isinstance(config, str):
            config = policies(point)[config].model_validate({})
        built[point] = config
    assert not configs, f"no decision points: {', '.join(configs)}"
    return PolicySet(**built)


def spec(nodes: int = 1, gpus_per_node: int = 1, idle_power_w: float = 20.0) -> ClusterSpec:
    """A small cluster."""
    return ClusterSpec.uniform(GPU, nodes, gpus_per_node, idle_power_w, 250.0)


class SquareRoot(LimitModel):
    """A model of power limits: jobs draw up to the limit, at the square root of that in speed."""

    def __init__(self) -> None:
        self.limits_w = tuple(map(float, range(100, 251)))

    def under_limit(self, limit_w: float, busy_w: float) -> tuple[float, float]:
        power_w = min(limit_w, busy_w)
        return power_w, (power_w / busy_w) ** 0.5


def build_world(
    jobs: Source | Iterable[Job],
    profiles: Profiles | None = None,
    cluster: ClusterSpec | None = None,
    policy_set: PolicySet | None = None,
    *,
    eta: float = 0.5,
    max_attempts: int = 20,
    start_on_submit: bool = False,
    occupancy: Occupancy = "simulated",
    profiling: Profiling = "measured",
    seed: int = 1,
    streams: RandomStreams | None = None,
    holds_pauses: bool = False,
    signals: Mapping[str, SignalSource] | None = None,
    stragglers: Mapping[str, Stragglers] | None = None,
    measured_w: Sequence[float] = (),
    losses: RunLosses | None = None,
    elastic: Callable[[ElasticParts], Subscriber] | None = None,
    latencies: Latencies = NO_LATENCIES,
    causes: Mapping[str, Pace] | None = None,
    paces: Sequence[Change] = (),
) -> World:
    """A world that has not run yet.

    `causes` and `paces`: what slows all attempts down, from the start and later.
    """
    env = SimulationEnvironment()
    source = cast("Source", jobs) if hasattr(jobs, "arrivals") else trace(jobs)
    draws = streams or NamedStreams(seed)
    rules = RunRules(Objective(eta), max_attempts, start_on_submit, holds_pauses)
    known = by_job(profile()) if profiles is None else profiles
    hardware = Cluster(cluster or spec())
    limits = dict.fromkeys(hardware.spec.gpu_types, SquareRoot())
    unprofiled = UnprofiledPower(hardware.spec.busy_w, limits, measured_w)
    delays = dict.fromkeys(known, latencies)
    replay = Replay(env, known, draws, rules.objective, unprofiled, occupancy, profiling, delays)
    slowed = SlowedBackend(env, replay, causes or {}, paces)
    backend = slowed if causes or paces else replay
    world = World(
        RunParts(
            env,
            hardware,
            source,
            backend,
            policy_set or chosen(),
            rules,
            draws,
            None,
            signals or {},
            stragglers or {},
            losses,
            elastic,
        )
    )
    replay.listener = world
    slowed.running = world.board.running
    return world


def run_world(*parts: Any, **settings: Any) -> World:
    """`build_world`, and run it to its end."""
    world = build_world(*parts, **settings)
    world.run()
    return world


class AttemptRow(NamedTuple):
    """A row of `jobs.parquet`, less variant and seed."""

    job_id: str
    group_id: str
    recurrence: int
    attempt: int
    workload: str | None
    gpu_type: str
    gpus: int
    gpu_milli: int
    node_ids: list[int]
    time_scale: float
    submit_time_s: float
    start_time_s: float
    finish_time_s: float
    batch_size: int | None
    power_limit_w: float | None
    epochs: int | None
    energy_j: float
    time_s: float
    overhead_s: float
    cost: float
    reached_target: bool
    early_stopped: bool
    profiled: bool
    replayed: str
    parent_model: str | None
    preemptions: int


class DecisionRow(NamedTuple):
    """A row of `decisions.parquet`, less variant and seed."""

    time_s: float
    point: str
    policy: str
    job_id: str
    attempt: int
    saw: int
    chose: str


def attempts(world: World) -> list[AttemptRow]:
    """The attempts, in order of ending."""
    recorded = recorded_columns(world.recorder, world.cluster.spec)
    columns = attempt_columns(recorded, world.source)
    rows = zip(*(columns[name].to_pylist() for name in AttemptRow._fields), strict=True)
    return [AttemptRow(*row) for row in rows]


def decisions(world: World) -> list[DecisionRow]:
    """The journal."""
    (columns,) = decision_columns(world.recorder.journal, world.source, ALL_ROWS)
    rows = zip(*(columns[name].to_pylist() for name in DecisionRow._fields), strict=True)
    return [DecisionRow(*row) for row in rows]


def integral(line: Timeline, values: Floats) -> float:
    """The integral of a column of a timeline over time."""
    return math.fsum((values[:-1] * np.diff(line.time_s)).tolist())


def timeline_of(world: World) -> Timeline:
    """The timeline of a world that has run."""
    rows = attempts(world)
    submit_s = np.array([row.submit_time_s for row in rows])
    held = np.array([row.gpus * row.gpu_milli for row in rows])
    parts = timeline(world.recorder, world.cluster.spec, submit_s, held)
    return Timeline(*map(np.concatenate, zip(*parts, strict=True)))


def attempts_by_job(world: World) -> dict[str, list[AttemptRow]]:
    """The attempts of each job, in order."""
    found: dict[str, list[AttemptRow]] = {}
    for row in attempts(world):
        found.setdefault(row.job_id, []).append(row)
    return found


def starts(world: World) -> dict[str, float]:
    """When each job started."""
    return {row.job_id: row.start_time_s for row in attempts(world) if row.attempt == 1}


def decided(world: World, point: Point | Literal["cap"]) -> list[tuple[float, str, str]]:
    """Time, job and choice of every decision of a decision point, in order."""
    return [(r.time_s, r.job_id, r.chose) for r in decisions(world) if r.point == point]


def stub(
    point: Point,
    *,
    needs_foresight: bool = False,
    limits_unprofiled: bool = False,
    moments: Sequence[Moment] = START_MOMENTS,
    signals: Sequence[str] = (),
    **methods: Callable[..., Any],
) -> Any:
    """The config of a policy that answers as told; it is off the registry again.

    Args:
        point: Its decision point.
        needs_foresight: What the config declares; so do the next three.
        limits_unprofiled: Likewise.
        moments: Likewise.
        signals: Likewise.
        methods: Of the policy, each without `self`.
    """
    policy = type(
        "Stub",
        (registry.POINTS[point].base,),
        {name: staticmethod(how) for name, how in methods.items()},
    )
    body = {
        "__module__": __name__,
        "__annotations__": {"kind": Literal["stub"], "point": ClassVar[Point]},
        "kind": "stub",
        "point": point,
        "needs_foresight": needs_foresight,
        "limits_unprofiled": limits_unprofiled,
        "moments": tuple(moments),
        "signals": property(lambda _: tuple(signals)),
        "build": lambda _: policy(),
    }
    config = type("StubConfig", (PolicyConfig,), body)
    parts._parts[point].pop("stub")
    return config()


class Setting(NamedTuple):
    """What a world is made of, drawn at random."""

    jobs: tuple[Job, ...]
    profiles: Profiles
    cluster: ClusterSpec
    policy_set: PolicySet
    eta: float
    max_attempts: int
    occupancy: Occupancy
    profiling: Profiling
    seed: int

    def run(self, losses: RunLosses | None = None, **parts: Any) -> World:
        """A new world of this setting, at its end."""
        return run_world(**self._asdict(), losses=losses, **parts)


batch_sizes = st.sampled_from([8, 16, 24, 32, 64, 100, 128])


@st.composite
def curves(draw: st.DrawFn, batch_size: int, max_epochs: int, *, reaches: bool) -> Curve:
    """A curve with any shape: a lower limit may be faster. It has a limit of 150 W."""
    limits = {150.0, *draw(st.sets(st.sampled_from([100.0, 125.0, 200.0, 250.0]), max_size=3))}
    seconds = st.floats(0.25, 20.0) | st.sampled_from([1.0, 2.0, 4.0])
    points = st.lists(
        st.tuples(seconds, st.floats(50.0, 400.0)), min_size=len(limits), max_size=len(limits)
    )
    times_s, powers_w = zip(*draw(points), strict=True)
    done = st.integers(1, max_epochs + 2).map(float)
    runs = draw(st.lists(done | st.just(NEVER), min_size=1, max_size=4))
    if reaches:
        runs.append(draw(st.integers(1, max_epochs).map(float)))
    return Curve(batch_size, tuple(sorted(limits)), times_s, powers_w, tuple(runs))


@st.composite
def profiles(draw: st.DrawFn, workload: str = "cnn", gpus: int = 1, gpu_type: str = GPU) -> Profile:
    """A profile whose default batch size reaches the target at least in some runs."""
    max_epochs = draw(st.integers(2, 8))
    sizes = sorted(draw(st.sets(batch_sizes, min_size=1, max_size=5)))
    default = draw(st.sampled_from(sizes))
    found = {b: draw(curves(b, max_epochs, reaches=b == default)) for b in sizes}
    return Profile(
        workload, gpu_type, gpus, 0.9, max_epochs, default, 250.0, found, samples_per_epoch=SAMPLES
    )


class Asked(NamedTuple):
    """What the jobs of a group ask for."""

    workload: str | None
    gpus: int
    gpu_milli: int
    gpu_type: str | None


DURATIONS_S = st.sampled_from([5.0, 10.0]) | st.floats(1.0, 20.0)


@st.composite
def job_lists(
    draw: st.DrawFn,
    asked: Sequence[Asked],
    *,
    min_size: int = 1,
    max_size: int = 12,
    seconds: st.SearchStrategy[float] = DURATIONS_S,
) -> tuple[Job, ...]:
    """Jobs of up to three groups by time of submission, many at the same time."""
    gaps = st.sampled_from([0.0, 0.0, 1.0, 0.1]) | st.floats(0.0, 60.0)
    groups = draw(st.lists(st.sampled_from(list(asked)), min_size=1, max_size=3))
    found: list[Job] = []
    now_s = 0.0
    for number in range(draw(st.integers(min_size, max_size))):
        now_s += draw(gaps)
        at = draw(st.integers(0, len(groups) - 1))
        workload, gpus, gpu_milli, gpu_type = groups[at]
        found.append(
            Job(
                f"job-{number}",
                f"group-{at}",
                1 + sum(one.group_id == f"group-{at}" for one in found),
                workload,
                gpus,
                now_s,
                draw(seconds),
                draw(st.sampled_from([1.0, 1.0, 0.5, 1.7])),
                number,
                gpu_milli,
                gpu_type,
                draw(st.sampled_from([None, "ann", "bob"])),
                draw(seconds),
                recorded_start_s=now_s + draw(seconds),
            )
        )
    return tuple(found)


@st.composite
def clusters(draw: st.DrawFn, most_types: int = 2) -> ClusterSpec:
    """Up to nine GPUs of each type, and all that a cluster may do besides."""
    few = st.integers(1, 3)
    kinds = [GPU, OTHER_GPU, "H100"][: draw(st.sampled_from([1, *range(1, most_types + 1)]))]
    groups = tuple(NodeGroup(kind, draw(few), draw(few)) for kind in kinds)
    seconds = st.sampled_from([0.0, 0.0, 1.0, 2.5])
    return ClusterSpec(
        groups,
        {kind: GpuPower(draw(st.floats(10.0, 60.0)), 250.0, 5.0) for kind in kinds},
        pue=draw(st.sampled_from([1.0, 1.0, 1.25])),
        sleep_after_s=draw(st.sampled_from([None, None, 0.0, 5.0])),
        wake_s=draw(seconds),
        checkpoint_s=draw(seconds),
        restore_s=draw(seconds),
    )


@st.composite
def demands(draw: st.DrawFn, cluster: ClusterSpec) -> tuple[list[Asked], list[Profile]]:
    """What jobs may ask of a cluster, and the profiles of those that train a workload.

    A workload has profiles on all GPU types that its jobs may run on.
    """
    asked: list[Asked] = []
    known: list[Profile] = []
    for number in range(draw(st.integers(1, 3))):
        named = draw(st.sets(st.sampled_from(cluster.gpu_types)).map(sorted))
        gpu_type = "|".join(named) or None
        what = draw(st.sampled_from(["profile", "profile", "duration", "part"]))
        gpus = draw(st.integers(1, 1 if what == "part" else cluster.most_gpus(gpu_type)))
        gpu_milli = draw(st.sampled_from([250, 500])) if what == "part" else 1000
        workload = f"net-{number}" if what == "profile" else None
        asked.append(Asked(workload, gpus, gpu_milli, gpu_type))
        for at in cluster.types_allowed(gpu_type) if workload else ():
            known.append(draw(profiles(f"net-{number}", gpus, cluster.gpu_types[at])))
    return asked, known


@st.composite
def caps(
    draw: st.DrawFn, cluster: ClusterSpec, asked: Sequence[Asked], known: Sequence[Profile]
) -> float | None:
    """No power cap, or one under which every job can start at least alone."""
    room = draw(st.sampled_from([None, None, 1.0, 1.5, 3.0]))
    if room is None:
        return None
    idle_w = {kind: power.idle_w for kind, power in cluster.power.items()}
    needs_w = [250.0 * one.gpus * one.gpu_milli / 1000 for one in asked] + [
        max(max(curve.average_power_w) for curve in one.curves.values())
        - idle_w[one.gpu_type] * one.gpus
        for one in known
    ]
    return cluster.idle_power_w + room * max(0.0, *needs_w)


@st.composite
def policy_sets(draw: st.DrawFn, *, over_time: bool = True) -> PolicySet:
    """Every combination of the policies that are there; a required field takes its example.

    Those that read signals are left out, and unless `over_time` those that decide after the start.
    """
    drawn: dict[str, PolicyConfig] = {}
    for point in DEFAULTS:
        known = [example(config) for config in policies(point).values()]
        drawn[point] = draw(
            st.sampled_from(
                [
                    config
                    for config in known
                    if not config.signals
                    and (over_time or set(config.moments) <= set(START_MOMENTS))
                ]
            )
        )
    if drawn["configure"].tunes:
        drawn["tune"] = find_config("tune", DEFAULTS["tune"])
    return PolicySet(**drawn)


@st.composite
def settings_of_worlds(
    draw: st.DrawFn,
    occupancies: Sequence[Occupancy] = ("simulated", "recorded"),
    profilings: Sequence[Profiling] = ("measured", "foreknown"),
) -> Setting:
    """All clusters, gangs up to all GPUs of a type, parts of GPUs, all policies."""
    cluster = draw(clusters())
    asked, known = draw(demands(cluster))
    occupancy = draw(st.sampled_from(list(occupancies)))
    if occupancy == "simulated":
        cluster = replace(cluster, power_cap_w=draw(caps(cluster, asked, known)))
    jobs = draw(job_lists(asked))
    profiling = draw(st.sampled_from(list(profilings)))
    if occupancy == "recorded":  # every job starts when it is submitted
        jobs = tuple(job.replace(recorded_start_s=job.submit_time_s) for job in jobs)
    return Setting(
        jobs=jobs,
        profiles=by_job(*known),
        cluster=cluster,
        policy_set=draw(policy_sets(over_time=(occupancy, profiling) == ("simulated", "measured"))),
        eta=draw(st.sampled_from([0.0, 0.5, 1.0])),
        max_attempts=draw(st.integers(1, 4)),
        occupancy=occupancy,
        profiling=profiling,
        seed=draw(st.integers(0, 1000)),
    )
