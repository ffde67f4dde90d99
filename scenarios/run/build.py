"""Puts the parts of a run together: the only place that knows them all."""

from __future__ import annotations

from wattkeeper.policies.profile import optimum
from wattkeeper.scenarios.inputs.read import RunInputs
from wattkeeper.scenarios.inputs.zoo_models import zoo_spec
from wattkeeper.scenarios.run import search_run
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.clock import Clock
from wattkeeper.sim.engine.replay import Replay
from wattkeeper.sim.engine.rng import NamedStreams, PublishedStreams, RandomStreams, checksum
from wattkeeper.sim.engine.sources import RecurringSource, Source, TraceSource
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.engine.zoo import SimulatedZoo
from wattkeeper.sim.results.tables import RunResult, collect


def execute(spec: RunSpec, inputs: RunInputs) -> RunResult:
    """Run one variant with one seed."""
    if inputs.search is not None:
        return search_run.execute(spec, inputs.search, inputs.cluster, inputs.folder)
    clock = Clock()
    source = source_of(inputs)
    streams = streams_of(spec, inputs)
    objective = spec.rules.objective
    hardware = inputs.cluster
    backend = Replay(
        clock,
        inputs.profiles,
        streams,
        objective,
        hardware,
        spec.occupancy,
        spec.profiling,
        inputs.latencies,
    )
    cluster = Cluster(hardware)
    zoo = None
    if spec.zoo is not None:
        assert spec.policies.retain is not None
        zoo = SimulatedZoo(zoo_spec(spec.zoo, inputs.models), spec.policies.retain, streams)
    world = World(clock, cluster, source, backend, spec.policies, spec.rules, streams, zoo)
    backend.listener = world
    world.run()
    optima = optima_of(spec, inputs)
    unmeasured = {key[0] for key, profile in inputs.profiles.items() if not profile.measured}
    return collect(
        spec.variant,
        spec.seed,
        world.recorder,
        source,
        hardware,
        optima,
        clock.events,
        zoo,
        unmeasured,
    )


def source_of(inputs: RunInputs) -> Source:
    """Where the jobs come from."""
    if inputs.jobs is not None:
        return TraceSource(inputs.jobs, inputs.models.of_job)
    (gpus,) = {gpus for _, gpus, _ in inputs.profiles}
    return RecurringSource(inputs.recurrences, gpus)


def streams_of(spec: RunSpec, inputs: RunInputs) -> RandomStreams:
    """Published: sequential groups take the run's seed, those of a trace the sum of their id."""
    if not spec.published:
        return NamedStreams(spec.seed)
    return PublishedStreams(checksum if inputs.jobs is not None else lambda _: spec.seed)


def optima_of(spec: RunSpec, inputs: RunInputs) -> dict[tuple[str, int, str], float]:
    """Smallest expected costs; absent where no configuration ever succeeded."""
    found = {
        key: optimum(profile, spec.rules.objective) for key, profile in inputs.profiles.items()
    }
    return {key: best.cost for key, best in found.items() if best is not None}
