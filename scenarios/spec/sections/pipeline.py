"""The section of scenario files on pipeline-parallel jobs."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, PositiveFloat, PositiveInt, Tag, model_validator

from wattkeeper.scenarios.spec.sections.section import Section, WorkloadSection
from wattkeeper.scenarios.spec.sections.values import Label, Seconds, Watts
from wattkeeper.traces.generate.pipelines import SyntheticPipeline

MAX_ITERATIONS = 1_000_000_000
MAX_MICROBATCHES = 10_000
MAX_CHUNKS = 64
MAX_FACTOR = 1e6

Microbatches = Annotated[int, Field(gt=0, le=MAX_MICROBATCHES)]
Iterations = Annotated[int, Field(gt=0, le=MAX_ITERATIONS)]


class SyntheticPipelineSource(Section):
    """A pipeline whose points a model gives."""

    synthetic: SyntheticPipeline
    """Parameters of the model; `{}` for the defaults."""


PipelineSource = str | SyntheticPipelineSource

ScheduleName = Literal["1f1b", "gpipe", "interleaved"]


class ScheduleSection(Section):
    """The order of the instructions of a pipeline."""

    kind: ScheduleName
    """`1f1b`; `gpipe`: all forward passes, then all backward passes; `interleaved`: 1F1B with
    several parts of the model on each rank (Megatron-LM)."""
    chunks: Annotated[int, Field(gt=0, le=MAX_CHUNKS)] = 1
    """Parts of the model on each rank; more than 1 only with `interleaved`."""
    backwards: Literal["last-first", "first-first"] = "last-first"
    """Which microbatch `gpipe` begins its backward passes with."""


Schedule = ScheduleName | ScheduleSection


class PipelineJob(Section):
    """A pipeline-parallel job; what it leaves out is as in the workload."""

    name: Label
    """Its name in results."""
    submit_s: Seconds = 0.0
    """When it is submitted, s."""
    profile: PipelineSource | None = None
    """See the workload."""
    schedule: Schedule | None = None
    """See the workload."""
    microbatches: Microbatches | None = None
    """See the workload."""
    iterations: Iterations | None = None
    """See the workload."""


class StragglerSection(Section):
    """From a time on, iterations of a job wait for a replica elsewhere."""

    at_s: Seconds
    """The time, s."""
    job: str
    """Name of the job."""
    factor: Annotated[float, Field(ge=1, le=MAX_FACTOR)]
    """Least time of an iteration over that at the highest clock; 1: it waits no more."""


class StragglerModel(Section):
    """Stragglers of all jobs at random, from streams of the seed; one after the other."""

    mean_gap_s: PositiveFloat
    """Mean time from the end of one to the start of the next, s; exponential."""
    mean_length_s: PositiveFloat
    """Mean length, s; exponential."""
    mean_excess: PositiveFloat
    """Mean of the factor beyond 1; exponential."""


def _form_of(stragglers: object) -> str:
    drawn = isinstance(stragglers, dict | StragglerModel)
    return StragglerModel.__name__ if drawn else "list"


AnyStragglers = Annotated[
    Annotated[tuple[StragglerSection, ...], Tag("list")]
    | Annotated[StragglerModel, Tag(StragglerModel.__name__)],
    Discriminator(_form_of),
]


class PipelineWorkload(WorkloadSection):
    """Pipeline-parallel jobs, whose GPUs' clocks can be chosen by instruction."""

    kind: Literal["pipeline"]
    profile: PipelineSource
    """A CSV file with the columns stage, instruction (`forward`, `backward`), frequency (MHz), time
    (s) and energy (J), or `synthetic:`. With `interleaved`, a stage of it is a part of the
    model."""
    gpus_per_stage: PositiveInt = 1
    """GPUs of each rank; times are the longest of them, energies their sum."""
    schedule: Schedule = "1f1b"
    """Order of the instructions."""
    microbatches: Microbatches
    """Microbatches of an iteration."""
    iterations: Iterations
    """Iterations of a job."""
    blocking_power_w: Watts
    """Power of a GPU that waits for another one, W."""
    jobs: Annotated[tuple[PipelineJob, ...], Field(min_length=1, max_length=100_000)] = (
        PipelineJob(name="pipeline"),
    )
    """The jobs; one named `pipeline` if absent."""
    stragglers: AnyStragglers = ()
    """When a replica elsewhere sets the pace: a list of changes, or how to draw them."""

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [job.name for job in self.jobs]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"jobs: the name {repeated[0]!r} stands there twice")
        if not isinstance(self.stragglers, StragglerModel):
            last_s = dict.fromkeys(names, -1.0)
            for index, change in enumerate(self.stragglers):
                if change.job not in last_s:
                    raise ValueError(
                        f"stragglers: entry {index} names the job {change.job!r}; there is "
                        f"{', '.join(names[:20])}"
                    )
                if change.at_s <= last_s[change.job]:
                    raise ValueError(
                        f"stragglers: entry {index} is at {change.at_s:g} s; times of a job must "
                        f"ascend, and the one before is at {last_s[change.job]:g} s"
                    )
                last_s[change.job] = change.at_s
        return self
