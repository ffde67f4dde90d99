"""The inputs of a run, and of all runs of a scenario."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.scenarios.inputs.latencies import NO_LATENCIES
from wattkeeper.scenarios.inputs.zoo_models import NO_MODELS, TraceModels
from wattkeeper.scenarios.spec.schema import ArchitectureSearch
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.engine.latencies import AllLatencies
from wattkeeper.sim.engine.replay import Profiles
from wattkeeper.traces.trace import Trace

NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


class RunInputs(NamedTuple):
    """The inputs of every run of a scenario, the same for all variants and seeds.

    Attributes:
        cluster: The nodes.
        profiles: The profiles that the jobs need.
        jobs: The jobs of the trace; None where jobs recur or a search submits them.
        recurrences: Number of recurrences of each workload, where jobs recur.
        gpus: GPUs of each recurring job.
        models: The models that jobs train.
        latencies: Latencies of trainings, by the key of their profile.
        search: The search whose networks are trained, instead of jobs that are replayed.
        trainings: Folder of those trainings.
        trained: Workloads that scripts train, in a live run (`live.workloads`).
    """

    cluster: ClusterSpec
    profiles: Profiles
    jobs: pa.Table | None = None
    recurrences: Mapping[str, int] = {}
    gpus: int = 1
    models: TraceModels = NO_MODELS
    latencies: AllLatencies = NO_LATENCIES
    search: ArchitectureSearch | None = None
    trainings: Path = Path()
    trained: frozenset[str] = frozenset()


class ScenarioInputs(NamedTuple):
    """The inputs of a scenario's runs, where they come from, and what was changed or left out.

    Attributes:
        run: The inputs of the runs.
        traces: The traces that they come from.
        dropped: Jobs of the trace that are left out, by reason.
        ignored: Jobs that run on any GPU type, by the type that they ask for.
        rows: The jobs' rows in the trace, from 0.
        mapping: Workloads that jobs got: rows for the manifest.
        timed: Number of jobs that got a duration from a model.
    """

    run: RunInputs
    traces: tuple[Trace, ...] = ()
    dropped: Mapping[str, int] = {}
    ignored: Mapping[str, int] = {}
    rows: Ints = NO_ROWS
    mapping: Sequence[Mapping[str, Any]] = ()
    timed: int = 0
