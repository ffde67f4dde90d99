"""Puts the parts of a run together and simulates it: the only place that makes a `World`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.profile import least_costs
from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.inputs.losses import open_losses
from wattkeeper.scenarios.inputs.measured_power import reserved_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.kinds.profiles import longest_run_times, set_deadlines
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster_results.attribution import find_owners
from wattkeeper.sim.cluster_results.tables import ClusterResult, collect
from wattkeeper.sim.engine.backend import Backend, ZooBackend
from wattkeeper.sim.engine.sources import RecurringSource, Source, TraceSource
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.engine.world import ElasticParts, RunParts, World
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.signals import Signal, SignalSource
from wattkeeper.sim.kernel.streams import NamedStreams, PublishedStreams, RandomStreams, checksum
from wattkeeper.sim.replay.backend import Replay
from wattkeeper.traces.arrow import replace_column

if TYPE_CHECKING:
    from wattkeeper.sim.cluster_results.laws import Cap, RunLaws
    from wattkeeper.sim.cluster_results.node_use import ElasticScope
    from wattkeeper.sim.engine.zoo import SimulatedZoo

Prepare = Callable[[World], object]
"""Called with a world before it runs, to start SimPy processes in its environment."""


def prepare_world(spec: RunSpec, inputs: RunInputs, source: Source | None = None) -> World:
    """The simulated world of one variant with one seed, ready to run; see `execute`."""
    env, streams, variant = SimulationEnvironment(), streams_of(spec, inputs), spec.variant
    backend = Replay(
        env,
        inputs.profiles,
        streams,
        variant.rules.objective,
        unprofiled_power(inputs, variant.boundness),
        variant.occupancy,
        variant.profiling,
        inputs.latencies,
    )
    zoo = build_zoo(spec, inputs, streams)
    source = source or source_of(inputs, variant.policies.select.names_queues)
    return build_world(spec, inputs, env, streams, backend, source, zoo)


def execute(
    spec: RunSpec, inputs: RunInputs, prepare: Prepare | None = None, source: Source | None = None
) -> ClusterResult:
    """Run one variant with one seed; `source` submits its jobs instead of the inputs' own."""
    world = prepare_world(spec, inputs, source)
    if prepare is not None:
        prepare(world)
    world.run()
    unmeasured = {key[0] for key, profile in inputs.profiles.items() if not profile.measured}
    return collect_results(spec, inputs, world, unmeasured)


def build_world(
    spec: RunSpec,
    inputs: RunInputs,
    env: SimulationEnvironment,
    streams: RandomStreams,
    backend: Backend,
    source: Source,
    zoo: ZooBackend | None,
    arriving: Mapping[str, SignalSource] = MappingProxyType({}),
) -> World:
    """The world of one variant with one seed, ready to run.

    `arriving`: signals whose values arrive while it runs, by name.
    """
    world = World(
        RunParts(
            env,
            Cluster(inputs.cluster),
            source,
            backend,
            spec.variant.policies,
            spec.variant.rules,
            streams,
            zoo,
            open_signals(inputs, streams) | dict(arriving),
            inputs.stragglers or {},
            open_losses(inputs.cluster, streams),
            _elastic(inputs),
        )
    )
    backend.listener = world
    if inputs.scratch is not None:
        world.recorder.spool.folder = inputs.scratch.folder
    return world


def _elastic(inputs: RunInputs) -> Callable[[ElasticParts], Subscriber] | None:
    """Makes the elastic jobs of a world; None: there are none."""
    elastic = inputs.elastic
    if elastic is None:
        return None
    from wattkeeper.sim.elastic.jobs import ElasticJobs

    return lambda parts: ElasticJobs(parts, *elastic)


def open_signals(inputs: RunInputs, streams: RandomStreams) -> dict[str, SignalSource]:
    """The signals of a run whose values are known, by name."""
    return {
        name: Signal(signal.series, signal.forecast, streams)
        for name, signal in inputs.signals.items()
        if signal.series is not None
    }


def collect_results(
    spec: RunSpec, inputs: RunInputs, world: World, unmeasured: Collection[str] = ()
) -> ClusterResult:
    """Tables and metrics of a world that has run; the power of unmeasured workloads is unknown.

    There is no best configuration of pipeline-parallel jobs to compare with: plans of clocks are
    not counted as such.
    """
    objective = spec.variant.rules.objective
    optima = {
        key: least_costs(profile, objective)
        for key, profile in inputs.profiles.items()
        if profile.pipeline is None
    }
    result = collect(
        spec.variant.name,
        spec.seed,
        world.recorder,
        world.source,
        inputs.cluster,
        optima,
        world.env.events,
        world.zoo,
        unmeasured,
        spec.variant.window,
        inputs.tariff,
        _scope(inputs),
        inputs.scratch,
        scheduled=inputs.jobs is not None or bool(inputs.every_s),
        owners=None if inputs.jobs is None else find_owners(inputs.jobs),
    )
    if inputs.checked:
        from wattkeeper.sim.cluster_results.laws import check_laws

        check_laws(result.tables, result.metrics, _laws_of(spec, inputs, world, not unmeasured))
    return result


def _laws_of(spec: RunSpec, inputs: RunInputs, world: World, measured: bool) -> RunLaws:
    """What the laws of a run need to know."""
    from wattkeeper.sim.cluster_results.laws import RunLaws

    cluster, jobs = inputs.cluster, inputs.jobs
    cap: Cap | None = None
    if cluster.cap is not None:
        series = inputs.signals[cluster.cap.name].series
        if series is not None:
            cap = series.changes
    elif cluster.power_cap_w is not None:
        constant = np.array([cluster.power_cap_w])
        cap = lambda from_s, _: (np.array([from_s]), constant)  # noqa: E731
    ids = frozenset[str]() if jobs is None else frozenset(jobs["job_id"].to_pylist())
    numbers = np.array(world.recorder.unable, dtype=np.int64)
    unable = frozenset(world.source.column("job_id", numbers).to_pylist())
    is_whole = spec.variant.window == (None, None)
    recorded = spec.variant.occupancy == "recorded"
    return RunLaws(cluster, cap, recorded, measured, is_whole, ids, unable)


def _scope(inputs: RunInputs) -> ElasticScope | None:
    """What results of elastic jobs are computed from; None: there are none."""
    elastic, jobs = inputs.elastic, inputs.jobs
    if elastic is None or jobs is None:
        return None
    from wattkeeper.sim.cluster_results.node_use import ElasticScope

    return ElasticScope(
        elastic.jobs, elastic.until_s, len(jobs) == len(elastic.jobs), inputs.prices
    )


def source_of(inputs: RunInputs, names_queues: bool = False) -> Source:
    """The source of the jobs; `names_queues`: whether they know their queues."""
    if inputs.jobs is not None:
        jobs = inputs.jobs
        if inputs.load != 1:
            submit_s = pc.divide(jobs["submit_time_s"], inputs.load)
            later_s = pc.subtract(jobs["deadline_s"], jobs["submit_time_s"])
            jobs = replace_column(jobs, "submit_time_s", submit_s)
            jobs = replace_column(jobs, "deadline_s", pc.add(submit_s, later_s))
            absent = pa.nulls(len(jobs), pa.float64())  # there were no starts of these arrivals
            jobs = replace_column(jobs, "start_time_s", absent)
        capped = inputs.cluster.power_cap_w is not None
        jobs = set_deadlines(jobs, inputs.slack, inputs.profiles, inputs.batch_size)
        reserved_w = _reserved_power(inputs, jobs) if capped or inputs.elastic else ()
        return TraceSource(jobs, inputs.models.of_job, reserved_w, names_queues)
    allowed_s = {}
    if inputs.slack is not None:
        longest_s = longest_run_times(inputs.profiles, inputs.batch_size)
        allowed_s = {name: (1 + inputs.slack) * run_s for (name, _), run_s in longest_s.items()}
    return RecurringSource(
        inputs.recurrences, inputs.gpus, allowed_s, inputs.every_s, inputs.models.of_job
    )


def _reserved_power(inputs: RunInputs, jobs: pa.Table) -> Sequence[float]:
    """What each job counts with under a power cap at first, W."""
    reserved_w = reserved_power(jobs)
    elastic = inputs.elastic
    if elastic is None:
        return reserved_w
    busy_w = next(iter(inputs.cluster.power.values())).busy_w or 0.0
    reserved_w = reserved_w or [0.0] * len(jobs)
    for number, job in elastic.jobs.items():
        reserved_w[number] = job.task.start_nodes * elastic.gpus_per_node * busy_w
    return reserved_w


def build_zoo(spec: RunSpec, inputs: RunInputs, streams: RandomStreams) -> SimulatedZoo | None:
    """The zoo of a run whose trainings are replayed or rehearsed; None if it has none."""
    stated, retain = spec.variant.zoo, spec.variant.policies.retain
    if stated is None or retain is None:
        return None
    from wattkeeper.scenarios.inputs.zoo_models import zoo_spec
    from wattkeeper.sim.engine.zoo import SimulatedZoo

    return SimulatedZoo(zoo_spec(stated, inputs.models), retain, streams)


def streams_of(spec: RunSpec, inputs: RunInputs) -> RandomStreams:
    """The random streams of a run.

    Published: recurring jobs take the run's seed, those of a trace the checksum of their group.
    """
    if not spec.variant.published:
        return NamedStreams(spec.seed)
    return PublishedStreams(checksum if inputs.jobs is not None else lambda _: spec.seed)
