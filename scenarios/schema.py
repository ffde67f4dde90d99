"""What a scenario file may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from wattkeeper.policies.registry import Point, PolicyConfig, policies
from wattkeeper.sim.replay import Occupancy, Profiling
from wattkeeper.traces.synthetic import SyntheticProfiles

MAX_GPUS = 10_000_000
MAX_POWER_W = 1e6
MAX_SEEDS = 10_000
MAX_RECURRENCES = 10_000_000

T = TypeVar("T")


def _different(values: tuple[T, ...]) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        raise ValueError("one of them stands there twice")
    return values


class OneOf:
    """Marks a field that holds a policy of a decision point: its name, or a mapping with `kind`."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A union of all configs of the decision point, told apart by `kind`."""
        choices = {kind: handler(config) for kind, config in policies(self.point).items()}
        union = core_schema.tagged_union_schema(choices, discriminator="kind")
        spelt_out = core_schema.no_info_before_validator_function(_spell_out, union)
        return core_schema.nullable_schema(spelt_out)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Either the name or the mapping."""
        names = {"type": "string", "enum": list(policies(self.point))}
        return {"anyOf": [names, handler(schema)]}


def _spell_out(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


class Model(BaseModel):
    """Base of all parts of a scenario: nothing unknown, nothing infinite, nothing changes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Cluster(Model):
    """Equal nodes with GPUs of one type."""

    gpu: str
    """GPU type, as the profiles call it."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of all nodes together."""
    gpus_per_node: PositiveInt | None = None
    """GPUs of a node; all on one node if absent."""
    idle_power_w: Annotated[float, Field(ge=0, le=MAX_POWER_W)]
    """What a GPU draws while no job holds it, W. Nobody recorded it: results call it modelled."""

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.gpus % (self.gpus_per_node or self.gpus):
            raise ValueError(
                f"gpus: {self.gpus} GPUs do not fill nodes of {self.gpus_per_node} (gpus_per_node)"
            )
        return self


class Synthetic(Model):
    """Profiles from a model of GPUs and workloads that nobody recorded."""

    synthetic: SyntheticProfiles
    """What is generated; `{}` for the defaults."""


class PerConfiguration(Model):
    """As many recurrences as the profile has configurations, times a factor."""

    per_configuration: Annotated[int, Field(gt=0, le=1000)]
    """The factor; the Zeus paper uses 2."""


ProfileSource = str | Synthetic


class Recurring(Model):
    """Jobs that recur, each recurrence submitted when the one before it finished."""

    kind: Literal["recurring"]
    profiles: ProfileSource
    """A trace of profiles by name or path, or `synthetic:`."""
    workloads: (
        Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_different)] | None
    ) = None
    """The workloads that recur; all that the GPU type has profiles of if absent."""
    recurrences: Annotated[int, Field(gt=0, le=MAX_RECURRENCES)] | PerConfiguration
    """How often each recurs."""
    gpus: PositiveInt = 1
    """GPUs that each job holds; the profiles must have been recorded on as many."""


class TraceJobs(Model):
    """The jobs of a trace, each at its recorded time."""

    kind: Literal["trace"]
    trace: str
    """A trace of jobs by name or path."""
    profiles: ProfileSource
    """A trace of profiles by name or path, or `synthetic:`."""


Workload = Annotated[Recurring | TraceJobs, Field(discriminator="kind")]


class Objective(Model):
    """What a job costs."""

    eta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """1 counts energy alone, 0 counts time alone."""


class Policies(Model):
    """The policy of each decision point."""

    configure: Annotated[PolicyConfig | None, OneOf("configure")] = None
    tune: Annotated[PolicyConfig | None, OneOf("tune")] = None
    select: Annotated[PolicyConfig | None, OneOf("select")] = None
    place: Annotated[PolicyConfig | None, OneOf("place")] = None


class Variant(Model):
    """What differs from the scenario."""

    policies: Policies = Policies()
    """Policies of some decision points; the others are the scenario's."""
    objective: Objective | None = None
    """Instead of the scenario's."""
    occupancy: Occupancy | None = None
    """Instead of the scenario's."""
    profiling: Profiling | None = None
    """Instead of the scenario's."""
    baseline: str | None = None
    """The variant that this one is compared with, instead of the scenario's."""


Seed = Annotated[int, Field(ge=0)]


class Scenario(Model):
    """A question, the jobs and the cluster it is asked of, and the variants that are compared."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the results."""
    question: str = ""
    """What the comparison answers."""
    cluster: Cluster
    workload: Workload
    objective: Objective = Objective()
    occupancy: Occupancy = "simulated"
    """Whether a decision changes how long a job holds its GPUs, or the trace says it."""
    profiling: Profiling = "measured"
    """Whether `Tune` knows what profiling found after the epoch that it takes, or before."""
    rng: Literal["named", "published"] = "named"
    """Random streams by name, the same luck for all variants; or the published Zeus simulator's,
    which takes the seeds of a trace's jobs from the names of their groups: `seeds` change nothing
    there."""
    max_attempts: PositiveInt = 20
    """A job is given up after so many failed attempts."""
    policies: Policies = Policies()
    """For all variants; first in first out, first fit, default batch size and highest power limit
    where nothing is said."""
    variants: Annotated[dict[str, Variant], Field(min_length=1)]
    """What is compared, by name."""
    baseline: str
    """The variant that the others are compared with."""
    seeds: (
        Annotated[int, Field(gt=0, le=MAX_SEEDS)]
        | Annotated[
            tuple[Seed, ...],
            Field(min_length=1, max_length=MAX_SEEDS),
            AfterValidator(_different),
        ]
    ) = 1
    """A number of seeds, from 1 on, or a list of them."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds

    @field_validator("baseline")
    @classmethod
    def _is_a_variant(cls, baseline: str, info: ValidationInfo) -> str:
        variants = info.data.get("variants")
        if variants is not None and baseline not in variants:
            raise ValueError(no_variant(baseline, variants))
        return baseline

    @field_validator("variants")
    @classmethod
    def _baselines_are_variants(cls, variants: dict[str, Variant]) -> dict[str, Variant]:
        for name, variant in variants.items():
            if not name:
                raise ValueError("a variant needs a name")
            if variant.baseline is not None and variant.baseline not in variants:
                raise PydanticCustomError(
                    "elsewhere", no_variant(variant.baseline, variants), {"at": (name, "baseline")}
                )
        return variants

    @model_validator(mode="after")
    def _recorded_jobs(self) -> Self:
        recorded = any(
            (variant.occupancy or self.occupancy) == "recorded"
            for variant in self.variants.values()
        )
        if recorded and not isinstance(self.workload, TraceJobs):
            raise ValueError("occupancy: recorded needs a workload of kind trace")
        return self


def no_variant(name: str, variants: Mapping[str, Variant]) -> str:
    """What to say of a variant that is not there."""
    return f"no variant {name!r}; there is {', '.join(variants)}"


def json_schema() -> dict[str, Any]:
    """The JSON schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    for part in schema["$defs"].values():
        if "const" in part.get("properties", {}).get("kind", {}):
            part["required"] = sorted({"kind", *part.get("required", ())})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
