"""The section of scenario files on elastic jobs."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from wattkeeper.policies.elastic.microbatches import MOST_MICROBATCHES
from wattkeeper.scenarios.spec.sections.section import Section, WorkloadSection
from wattkeeper.scenarios.spec.sections.values import Label, Seconds

MAX_NODES = 100_000

Nodes = Annotated[int, Field(gt=0, le=MAX_NODES)]
Rates = Annotated[dict[Nodes, Annotated[float, Field(ge=0, le=1e12)]], Field(min_length=1)]
ByNodes = Seconds | Annotated[dict[Nodes, Seconds], Field(min_length=1)]


class PlannedPipelines(Section):
    """Costs of the layers of a job, from which Oobleck's pipelines are planned."""

    layers: str
    """A CSV file with the columns layer, fb_s, and extra_2gpus_s and so on for nodes of several
    GPUs; state_bytes (of weights and optimizer state) says how much is copied."""
    profile: str = ""
    """Of the file, if it has several."""
    least_nodes: Nodes
    """Fewest nodes of a pipeline: so many hold the model."""
    losses: Annotated[int, Field(ge=0, le=MAX_NODES)] = 1
    """Pipelines have at most so many nodes that one remains after this many losses at a time."""
    microbatch: Annotated[int, Field(gt=0, le=1_000_000)]
    """Samples of a micro-batch; costs of layers are those of one."""


class ElasticJobSection(Section):
    """An elastic job: it trains on as many nodes as it gets, between a least and a most number."""

    name: Label
    """Its name in results."""
    model: str
    """What it trains, as `rates` names it."""
    submit_s: Seconds = 0.0
    """When it is submitted, s."""
    batch: Annotated[float, Field(gt=0, le=1e12)]
    """Samples of a step, over all nodes; the same on any number of them."""
    least_nodes: Nodes
    """Fewest nodes that it holds; where its rate on so many is 0, it waits for more."""
    most_nodes: Nodes
    """Most nodes that it holds."""
    checkpoint_s: Seconds
    """Time to write a checkpoint to storage, s."""
    restart_s: ByNodes
    """Time to restart, s, with a checkpoint that is written before and read afterwards; or by
    number of nodes: that of a number that is not listed is that of the next lower one listed, or
    of the lowest."""
    reconfigure_s: Seconds
    """Time in which nodes that kept their state take another shape, s."""
    samples: PositiveFloat | None = None
    """Samples after which it ends; at `until_s` if absent."""
    pipelines: PlannedPipelines | None = None
    """Gives `replan: oobleck` pipelines, whose time replaces measured rates of oobleck."""

    @model_validator(mode="after")
    def _costs_fit(self) -> Self:
        if self.most_nodes < self.least_nodes:
            raise ValueError(
                f"most_nodes: {self.most_nodes} is less than least_nodes, {self.least_nodes}"
            )
        if self.pipelines is not None and self.batch % self.pipelines.microbatch:
            raise ValueError(
                f"batch: {self.batch:g} samples are no whole number of micro-batches of "
                f"{self.pipelines.microbatch} (pipelines.microbatch)"
            )
        if (
            self.pipelines is not None
            and self.batch / self.pipelines.microbatch > MOST_MICROBATCHES
        ):
            raise ValueError(
                f"batch: {self.batch:g} samples are more than {MOST_MICROBATCHES:,} micro-batches "
                f"of {self.pipelines.microbatch} (pipelines.microbatch)"
            )
        times = self.restart_s.values() if isinstance(self.restart_s, dict) else [self.restart_s]
        if min(times) < 2 * self.checkpoint_s:
            raise ValueError(
                f"restart_s: {min(times):g} s is shorter than writing and reading a checkpoint, "
                f"which takes twice checkpoint_s, {self.checkpoint_s:g} s"
            )
        return self


class OtherJobs(Section):
    """Jobs of a trace that share the cluster with elastic ones."""

    trace: str
    """A trace of jobs without workloads, by name or path."""
    gpu_types: Literal["obey", "ignore"] = "obey"
    """Whether a job runs only on the GPU types that the trace names for it, or on any."""
    unusable: Literal["refuse", "drop"] = "refuse"
    """Whether to refuse a trace with jobs that can never run here, or to drop these jobs."""


class ElasticWorkload(WorkloadSection):
    """Jobs that continue when they gain or lose nodes, as `policies.replan` decides."""

    replans: ClassVar[bool] = True

    kind: Literal["elastic"]
    rates: str | dict[str, Rates] | None = None
    """Samples a second by number of nodes: a CSV file with the columns model, num_nodes,
    samples_per_s and, if several training systems were measured, system; or a mapping by model.
    Only `replan: oobleck` of jobs with `pipelines` needs none."""
    beyond_rates: Literal["refuse", "nearest"] = "refuse"
    """What holds on fewer or more nodes than `rates` lists between `least_nodes` and `most_nodes`:
    an error, or the rate of the nearest number listed."""
    jobs: Annotated[tuple[ElasticJobSection, ...], Field(min_length=1, max_length=10_000)]
    """The elastic jobs."""
    until_s: Annotated[float, Field(gt=0, le=1e10)] | None = None
    """When all elastic jobs end that have not trained their samples, s."""
    others: OtherJobs | None = None
    """Other jobs of the cluster; none if absent."""

    @model_validator(mode="after")
    def _jobs_end(self) -> Self:
        if self.rates is None and self.beyond_rates != "refuse":
            raise ValueError(f"beyond_rates: {self.beyond_rates} has no effect without rates")
        names = [job.name for job in self.jobs]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"jobs: the name {repeated[0]!r} stands there twice")
        for job in self.jobs:
            if job.samples is None and self.until_s is None:
                raise ValueError(
                    f"jobs: {job.name!r} has no end: say after how many samples (samples), or when "
                    "all end (until_s)"
                )
            if self.until_s is not None and job.submit_s >= self.until_s:
                raise ValueError(
                    f"jobs: {job.name!r} is submitted at {job.submit_s:g} s, and all end at "
                    f"{self.until_s:g} s (until_s)"
                )
        return self
