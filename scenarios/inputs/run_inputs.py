"""The inputs of a run, and of all runs of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.forecasting import ForecastConfig
from wattkeeper.scenarios.inputs.measured_energy import MeasuredEnergy
from wattkeeper.scenarios.inputs.profiled_jobs import ProfiledJobs
from wattkeeper.scenarios.inputs.zoo_models import NO_MODELS, TraceModels
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.cluster_results.accounting import NO_TARIFF, Tariff
from wattkeeper.sim.kernel.signals import SignalSeries
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.sim.replay.latencies import Latencies
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.parquet import ScratchFolder
from wattkeeper.traces.gpus.model import GpuModel
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from wattkeeper.scenarios.spec.sections.signals import AnyLiveSource
    from wattkeeper.sim.cluster_results.node_use import NodePrices
    from wattkeeper.sim.elastic.jobs import ElasticJob
    from wattkeeper.sim.engine.features.stragglers import Stragglers
    from wattkeeper.traces.layer_costs import LayerProfile
    from wattkeeper.traces.models.network_table import NetworkTable
    from wattkeeper.traces.node_rates import NodeRates

NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


class SignalInput(NamedTuple):
    """A signal of a run.

    Attributes:
        series: Its values; None where they arrive in the run.
        forecast: How its future is predicted; None: it is not.
        source: Where values arrive from; None where they are known.
        beside: The folder that the path of a file is relative to.
    """

    series: SignalSeries | None
    forecast: ForecastConfig | None
    source: AnyLiveSource | None = None
    beside: Path = Path()


class SourceFile(NamedTuple):
    """A file besides traces, or the model that stands for it.

    Attributes:
        name: Its name.
        kind: What it holds.
        format: Its format.
        origin: Whether it was recorded or made up.
        sha256: SHA-256 of each file.
        content: Digest of its content.
        parameters: Of the model.
    """

    name: str
    kind: str
    format: str
    origin: str
    sha256: Mapping[str, str]
    content: str
    parameters: Mapping[str, Any] = {}

    @classmethod
    def of_csv(cls, file: NodeRates | LayerProfile, kind: str) -> SourceFile:
        """A recorded CSV file."""
        digest = digest_tables({"rates": file.table})
        return cls(file.name, kind, "csv", "recorded", {file.name: file.sha256}, digest)


class ElasticInputs(NamedTuple):
    """The elastic jobs of a run.

    Attributes:
        jobs: By number.
        gpus_per_node: GPUs of each node of the cluster.
        until_s: When they end that have not trained their samples, s.
    """

    jobs: Mapping[int, ElasticJob]
    gpus_per_node: int
    until_s: float


class RunInputs(NamedTuple):
    """The inputs of every run of a variant; variants share what is equal.

    A field for each kind of input, most of which a scenario leaves out.

    Attributes:
        cluster: The nodes.
        profiles: The profiles that the jobs need.
        jobs: The jobs of the trace, the same for all variants; None where jobs recur or a search
            submits them.
        load: Their submission times are divided by it.
        recurrences: Number of recurrences of each workload, where jobs recur.
        gpus: GPUs of each recurring job.
        every_s: Time from one submission of a workload to the next, s; of others, the next
            recurrence follows when the one before finishes.
        models: The models that jobs train.
        latencies: Latencies of trainings, by the key of their profile.
        trainings: Folder of what a search trains.
        scratch: For rows and tables of large runs; None: they are in memory.
        checked: Whether all laws of `wattkeeper.sim.cluster_results.laws` are checked after each
            run.
        trained: Workloads that scripts train, in a live run (`live.workloads`).
        tariff: What electricity costs and emits.
        limits: Models of power limits of jobs without a profile, by GPU type; only where `Tune`
            limits them.
        signals: What policies read, by name.
        slack: Time that jobs without a deadline get beyond their run time, relative to that; None:
            they get no deadline.
        batch_size: At which that run time is meant; None: the default one of each workload.
        stragglers: What slows pipeline-parallel jobs down, by job.
        elastic: The elastic jobs; None: there are none.
        prices: What their nodes cost; None: not known.
        table: The networks of a search whose recordings are replayed; None: there is no such.
    """

    cluster: ClusterSpec
    profiles: Profiles
    jobs: pa.Table | None = None
    load: float = 1.0
    recurrences: Mapping[str, int] = {}
    gpus: int = 1
    every_s: Mapping[str, float] = {}
    models: TraceModels = NO_MODELS
    latencies: Mapping[tuple[str, int, str], Latencies] = {}
    trainings: Path = Path()
    scratch: ScratchFolder | None = None
    checked: bool = False
    trained: frozenset[str] = frozenset()
    tariff: Tariff = NO_TARIFF
    limits: Mapping[str, GpuModel] = {}
    signals: Mapping[str, SignalInput] = {}
    slack: float | None = None
    batch_size: int | None = None
    stragglers: Mapping[str, Stragglers] = {}
    elastic: ElasticInputs | None = None
    prices: NodePrices | None = None
    table: NetworkTable | None = None

    @property
    def job_count(self) -> int:
        """Number of jobs that a simulation replays."""
        return sum(self.recurrences.values()) if self.jobs is None else len(self.jobs)


InputsByVariant = Mapping[str, RunInputs]


class ScenarioInputs(NamedTuple):
    """The inputs of a scenario's runs, where they come from, and what was changed or left out.

    Attributes:
        runs: The inputs of the runs, by variant.
        traces: The traces that they come from.
        dropped: Number of jobs of the trace that are left out of all variants, by reason.
        dropped_for: The same for the variants that cannot run them, by their names; empty if no
            variant could.
        ignored: Jobs that run on any GPU type, by the type that they ask for.
        rows: The jobs' rows in the trace, from 0.
        mapping: Workloads that jobs got: rows for the manifest.
        timed: Number of jobs that got a duration from a model.
        profiled: What profiles stand for; None if there is nothing to say.
        measured: Jobs with measured energy; None if there are none.
        files: Other files, of jobs and of policies.
        adjusted: What the workload states instead of what was recorded, in words.
    """

    runs: InputsByVariant
    traces: tuple[Trace, ...] = ()
    dropped: Mapping[str, int] = {}
    dropped_for: Mapping[str, Mapping[str, int]] = {}
    ignored: Mapping[str, int] = {}
    rows: Ints = NO_ROWS
    mapping: Sequence[Mapping[str, Any]] = ()
    timed: int = 0
    profiled: ProfiledJobs | None = None
    measured: MeasuredEnergy | None = None
    files: tuple[SourceFile, ...] = ()
    adjusted: tuple[str, ...] = ()

    @property
    def any_run(self) -> RunInputs:
        """The inputs of a variant, for what is the same in all: jobs and models."""
        return next(iter(self.runs.values()))

    def update_runs(self, **changes: Any) -> ScenarioInputs:
        """The same with some fields of all runs changed."""
        changed = {name: run._replace(**changes) for name, run in self.runs.items()}
        return self._replace(runs=changed)
