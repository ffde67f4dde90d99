"""Simulates a run: jobs are replayed from their profiles."""

from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.run.build import (
    Prepare,
    build_world,
    build_zoo,
    collect_results,
    source_of,
    streams_of,
)
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.engine.sources import Source
from wattkeeper.sim.engine.world import World
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.replay.backend import Replay


def prepare_world(spec: RunSpec, inputs: RunInputs, source: Source | None = None) -> World:
    """The simulated world of one variant with one seed, ready to run; see `execute`."""
    env, streams = SimulationEnvironment(), streams_of(spec, inputs)
    backend = Replay(
        env,
        inputs.profiles,
        streams,
        spec.rules.objective,
        unprofiled_power(inputs, spec.boundness),
        spec.occupancy,
        spec.profiling,
        inputs.latencies,
    )
    zoo = build_zoo(spec, inputs, streams)
    source = source or source_of(inputs, spec.policies.select.names_queues)
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
