"""The schema of scenario files."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PositiveInt,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from wattkeeper.policies.registry import Point, PolicyConfig, policies
from wattkeeper.scenarios.spec.electricity import ElectricitySection
from wattkeeper.scenarios.spec.section import LARGEST, Section
from wattkeeper.sim.engine.replay import Occupancy, Profiling
from wattkeeper.traces.files.names import LONGEST, PATTERN, explain_label
from wattkeeper.traces.generate.synthetic import SyntheticProfiles
from wattkeeper.traces.gpus.model import Boundness

MAX_GPUS = 10_000_000
MAX_POWER_W = 1e6
MAX_SEEDS = 10_000
MAX_RECURRENCES = 10_000_000
MAX_LOAD = 1e6

T = TypeVar("T")


def _check_distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    if len(set(values)) < len(values):
        raise ValueError("a value stands there twice")
    return values


def _check_label(name: str) -> str:
    if problem := explain_label(name, "name"):
        raise ValueError(problem)
    return name


Label = Annotated[str, AfterValidator(_check_label)]
"""A name that is no name of a file."""


class OneOf:
    """Marks a field that holds a policy of a decision point: its name, or a mapping with `kind`."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A union of all configs of the decision point, discriminated by `kind`."""
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
    """The mapping that a name stands for, with tuples for lists, as strict mode requires."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, dict):
        return {key: _frozen(inside) for key, inside in value.items()}
    return value


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


Watts = Annotated[float, Field(ge=0, le=MAX_POWER_W)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class Nodes(Section):
    """Equal nodes."""

    gpu: str
    """Their GPU type, as the profiles and the jobs call it."""
    count: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """Number of nodes."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of each."""


def _check_power(idle: str, idle_w: float, busy: str, busy_w: float | None) -> None:
    """Refuse a GPU that draws more power idle than busy."""
    if busy_w is not None and idle_w > busy_w:
        raise PydanticCustomError(
            "elsewhere",
            "{busy}: a busy GPU draws {busy_w} W, less than an idle one ({idle}, {idle_w} W)",
            {"at": (busy,), "busy": busy, "busy_w": f"{busy_w:g}", "idle": idle,
             "idle_w": f"{idle_w:g}"},
        )  # fmt: skip


class Power(Section):
    """Power of a GPU type where it was not measured; results call it modelled."""

    idle_w: Watts
    """Power of one GPU while no job holds it, W."""
    busy_w: Watts | None = None
    """Power of one GPU while a job without a profile holds it, W; such jobs need it."""
    model: str | None = None
    """GPU type whose model says what a power limit changes for such jobs; the type itself if
    absent."""

    @model_validator(mode="after")
    def _busy_draws_more(self) -> Self:
        _check_power("idle_w", self.idle_w, "busy_w", self.busy_w)
        return self


class Sleep(Section):
    """A node sleeps while all its GPUs are free."""

    after_s: Seconds
    """Time from the end of its last job, or from the start, until it sleeps, s."""
    power_w: Watts
    """Power of each of its GPUs asleep, W."""
    wake_s: Seconds
    """Time to wake, s: a job that starts there first holds its GPUs idle for it."""


class Preemption(Section):
    """Cost of a preemption."""

    checkpoint_s: Seconds = 0.0
    """Time in which its nodes save its state, s: a job that starts there meanwhile holds its GPUs
    idle until that is done."""
    restore_s: Seconds = 0.0
    """Time for which it holds its GPUs idle before it goes on, s."""


class Facility(Section):
    """Keys of all clusters."""

    pue: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Power usage effectiveness: power of the whole facility over that of its GPUs."""
    power_cap_w: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Cap on the power of all GPUs together, before `pue`, W: a job waits if it could exceed the
    cap. Free GPUs count as idle, asleep or not. No cap if absent."""
    sleep: Sleep | None = None
    """Sleep of free nodes; they never sleep if absent."""
    preemption: Preemption = Preemption()
    """Cost of a preemption."""


class UniformCluster(Facility):
    """Equal nodes with GPUs of one type."""

    gpu: str
    """GPU type, as the profiles and the jobs call it."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of all nodes together."""
    gpus_per_node: PositiveInt | None = None
    """GPUs of a node; all on one node if absent."""
    idle_power_w: Watts
    """Power of a GPU while no job holds it, W; results call it modelled."""
    busy_power_w: Watts | None = None
    """Power of a GPU while a job without a profile holds it, W; modelled too. Needed where there
    are such jobs."""
    gpu_model: str | None = None
    """GPU type whose model says what a power limit changes for such jobs; `gpu` if absent."""

    @model_validator(mode="after")
    def _busy_draws_more(self) -> Self:
        _check_power("idle_power_w", self.idle_power_w, "busy_power_w", self.busy_power_w)
        return self

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.gpus % (self.gpus_per_node or self.gpus):
            raise ValueError(
                f"gpus: {self.gpus} GPUs do not fill nodes of {self.gpus_per_node} (gpus_per_node)"
            )
        return self


class MixedCluster(Facility):
    """Nodes with different GPUs."""

    nodes: str | Annotated[tuple[Nodes, ...], Field(min_length=1)]
    """Groups of equal nodes, or a trace of jobs with a table of nodes, by name or path."""
    power: Annotated[dict[str, Power], Field(min_length=1)]
    """Power of a GPU, by GPU type; every type of the nodes has an entry."""

    @model_validator(mode="after")
    def _power_is_stated(self) -> Self:
        if not isinstance(self.nodes, str):
            absent = sorted({group.gpu for group in self.nodes} - set(self.power))
            if absent:
                raise ValueError(f"power: no entry for {', '.join(absent)}")
        return self


def own_keys(form: type[Facility]) -> list[str]:
    """The keys that only this form of a cluster has."""
    return [key for key in form.model_fields if key not in Facility.model_fields]


def _form_of(cluster: object) -> str | None:
    """The name of the form; None if keys of both are there."""
    if isinstance(cluster, Facility):
        return type(cluster).__name__
    keys = set(cluster) if isinstance(cluster, dict) else set()
    if keys.isdisjoint(own_keys(MixedCluster)):
        return UniformCluster.__name__
    return MixedCluster.__name__ if keys.isdisjoint(own_keys(UniformCluster)) else None


AnyCluster = Annotated[
    Annotated[UniformCluster, Tag(UniformCluster.__name__)]
    | Annotated[MixedCluster, Tag(MixedCluster.__name__)],
    Discriminator(
        _form_of,
        custom_error_type="both_forms",
        custom_error_message=(
            f"a cluster has either {', '.join(own_keys(UniformCluster))} or "
            f"{', '.join(own_keys(MixedCluster))}; this one mixes both"
        ),
    ),
]
"""Discriminated by their own keys."""


class SyntheticSource(Section):
    """Profiles generated by a model of GPUs and workloads."""

    synthetic: SyntheticProfiles
    """Parameters of the generator; `{}` for the defaults."""


class PerConfiguration(Section):
    """As many recurrences as the profile has configurations, times a factor."""

    per_configuration: Annotated[int, Field(gt=0, le=1000)]
    """The factor; the Zeus paper uses 2."""


ProfileSource = str | SyntheticSource
Recurrences = Annotated[int, Field(gt=0, le=MAX_RECURRENCES)] | PerConfiguration
Load = Annotated[float, Field(gt=0, le=MAX_LOAD)]


class RecurringWorkload(Section):
    """Jobs that recur; a recurrence is submitted when the one before it finishes."""

    kind: Literal["recurring"]
    profiles: ProfileSource | None = None
    """A trace of profiles by name or path, or `synthetic:`. A live run whose workloads all have a
    command (`live`) needs none."""
    workloads: (
        Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_check_distinct)] | None
    ) = None
    """The workloads that recur; all that the GPU type has profiles of if absent."""
    recurrences: Recurrences
    """Number of recurrences of each workload."""
    gpus: PositiveInt = 1
    """GPUs that each job holds; the profiles must have been recorded on as many."""


MappedDuration = Literal["keep", "workload"]


class WorkloadMapping(Section):
    """Jobs of a plain trace get workloads as in the Zeus study (NSDI '23, section 6.3)."""

    by: tuple[Literal["user", "queue", "gpus"], ...] = ("user", "queue", "gpus")
    """Columns that identify the recurrences of a job where the trace has no groups."""
    duration: MappedDuration = "keep"
    """`keep`: a job takes its recorded duration in the default configuration, by expectation over
    the recorded runs of its workload, and only ratios are the profile's. `workload`: it takes the
    time of its workload, times its recorded duration over its group's mean, as in the study."""


class Durations(Section):
    """Model of the time of a training from scratch, where the trace has no duration."""

    base_s: Seconds
    """Time for a model without parameters, s."""
    s_per_million_parameters: Seconds
    """Additional time per million parameters, s."""


class TraceWorkload(Section):
    """The jobs of a trace, each at its recorded time."""

    kind: Literal["trace"]
    trace: str
    """A trace of jobs by name or path."""
    profiles: ProfileSource | None = None
    """A trace of profiles by name or path, or `synthetic:`; none if no job names a workload."""
    mapping: WorkloadMapping | None = None
    """Gives workloads to jobs that name none; the others run for their recorded duration."""
    durations: Durations | None = None
    """Estimates the duration of jobs that train a model and have none recorded."""
    gpu_types: Literal["obey", "ignore"] = "obey"
    """Whether a job runs only on the GPU types that the trace names for it, or on any type; it
    takes equally long on all of them if it has no profile."""
    unusable: Literal["refuse", "drop"] = "refuse"
    """Whether to refuse a trace with jobs that can never run here, or to drop these jobs: larger
    than the cluster, of a GPU type that it lacks, above its power cap, or without a recorded
    duration."""
    load: Load = 1.0
    """Submission times are divided by it: with 2, the same jobs arrive twice as fast."""


class SearchTraining(Section):
    """Rule by which Adam trains all networks of a search to convergence, parent or not."""

    batch_size: Annotated[int, Field(gt=0, le=1024)] = 64
    """Images per step."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-3
    """The default is that of Kingma and Ba (ICLR '15)."""
    patience: Annotated[int, Field(gt=0, le=1000)] = 5
    """Number of epochs without a better validation accuracy after which a training ends."""
    most_epochs: Annotated[int, Field(gt=0, le=100_000)] = 100
    """Largest number of epochs."""


class ArchitectureSearch(Section):
    """A search for architectures; its networks are really trained, one after the other."""

    kind: Literal["search"]
    models: Annotated[int, Field(gt=0, le=10_000)]
    """Number of different networks, each a mutation of an earlier one."""
    training: SearchTraining = SearchTraining()
    """Rule by which all networks are trained."""


Workload = Annotated[
    RecurringWorkload | TraceWorkload | ArchitectureSearch, Field(discriminator="kind")
]


class LiveWorkload(Section):
    """A script that trains a workload, with `wattkeeper.live.Session` in it."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """The command, word by word; `python` is the interpreter that runs wattkeeper."""
    batch_sizes: Annotated[
        tuple[PositiveInt, ...], Field(min_length=1), AfterValidator(_check_distinct)
    ]
    """Global batch sizes that may be chosen, samples."""
    default_batch_size: PositiveInt
    """The one that is used by default; the learning rate of the script belongs to it."""
    target: float | None = None
    """Value of the metric that ends the training; it does all its epochs if absent."""
    higher_is_better: bool = True
    """Whether the target is reached from below."""
    max_epochs: PositiveInt
    """Number of epochs after which it is given up."""

    @model_validator(mode="after")
    def _default_is_there(self) -> Self:
        if self.default_batch_size not in self.batch_sizes:
            raise ValueError(
                f"default_batch_size: {self.default_batch_size} is not among batch_sizes "
                f"({', '.join(map(str, self.batch_sizes))})"
            )
        return self


class LiveSection(Section):
    """Settings of `wattkeeper run --live`; the simulator ignores them."""

    runner: Literal["subprocess", "torchrun", "ray"] = "subprocess"
    """`subprocess` and `torchrun` run on this host, the latter with one process per GPU; `ray` runs
    on all hosts of a Ray cluster."""
    lease_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Time without a message after which an attempt is given up, s; its start counts."""
    power_control: Literal["auto", "off"] = "auto"
    """`auto`: power limits are set where this is allowed; `off`: never."""
    speed: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Seconds of the run per second of the host, while all rehearsals wait; only where all
    workloads are rehearsed. Real time if absent."""
    workloads: dict[Label, LiveWorkload] = Field(default_factory=dict)
    """How workloads are trained; others are rehearsed from their profiles on a synthetic device. A
    job of a trace that names no workload has the task of its model."""

    @model_validator(mode="after")
    def _speed_of_rehearsals(self) -> Self:
        if self.speed is not None and self.workloads:
            raise ValueError(
                "speed: a real training cannot be sped up; leave it out, or `workloads`"
            )
        return self


class ObjectiveSection(Section):
    """Cost of a job."""

    eta: Annotated[float, Field(ge=0, le=1)] = 0.5
    """1 counts energy alone, 0 counts time alone."""


class LatenciesSection(Section):
    """Times for which a job with a profile holds its GPUs idle, other than training.

    Those of a preemption are in `cluster.preemption`.
    """

    start_s: Seconds = 0.0
    """From the start of an attempt to its first step, s."""
    stop_s: Seconds = 0.0
    """From its last step until its GPUs are free, s."""
    report_s: Seconds = 0.0
    """To report an epoch, s."""
    settle_s: Seconds = 0.0
    """Until a power limit is in force, each time that one is set, s."""


class AccountingSection(Section):
    """Window over which the energy of the cluster is counted, the same for all variants."""

    from_s: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    """Its begin, s since the start of the run; the first submission over all variants if absent."""
    until_s: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    """Its end, likewise; the last end over all variants if absent."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if self.from_s is not None and self.until_s is not None and self.from_s >= self.until_s:
            raise ValueError(f"until_s: {self.until_s:g} s is not after from_s, {self.from_s:g} s")
        return self


class ZooSection(Section):
    """A store of trained models that later ones may start from; empty when the run begins."""

    capacity_gb: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Capacity, 10^9 bytes at 4 bytes per parameter; no bound if absent."""
    accuracy: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] | None = None
    """Accuracy from scratch of models that have none in the trace; modelled."""


class Policies(Section):
    """The policy of each decision point."""

    configure: Annotated[PolicyConfig | None, OneOf("configure")] = None
    tune: Annotated[PolicyConfig | None, OneOf("tune")] = None
    select: Annotated[PolicyConfig | None, OneOf("select")] = None
    place: Annotated[PolicyConfig | None, OneOf("place")] = None
    retain: Annotated[PolicyConfig | None, OneOf("retain")] = None


class WorkloadSize(Section):
    """Keys of the workload that a variant may override."""

    recurrences: Recurrences | None = None
    """Number of recurrences of each workload, where jobs recur."""
    load: Load | None = None
    """Submission times of a trace are divided by it."""


class Variant(Section):
    """One set of policies, on a cluster; what it leaves out is the scenario's."""

    cluster: AnyCluster | None = None
    """Keys of the scenario's cluster that differ. Mappings are merged key by key, lists are
    replaced, `null` removes a key. With keys of the other form, the cluster has that form."""
    workload: WorkloadSize | None = None
    """Keys of the scenario's workload that differ."""
    policies: Policies = Policies()
    """Policies of some decision points; the others are the scenario's."""
    objective: ObjectiveSection | None = None
    """Instead of the scenario's."""
    occupancy: Occupancy | None = None
    """Instead of the scenario's."""
    profiling: Profiling | None = None
    """Instead of the scenario's."""
    zoo: ZooSection | None = None
    """Its keys override those of the scenario's zoo; `capacity_gb: null` means no bound."""
    boundness: Boundness | None = None
    """How far jobs without a profile are bound by compute, where their power is limited: one case;
    all three if absent."""
    electricity: ElectricitySection | None = None
    """Instead of the scenario's, with the same of `price` and `carbon`."""
    baseline: str | None = None
    """The variant that this one is compared with, instead of the scenario's."""


Seed = Annotated[int, Field(ge=0)]

Axes = Annotated[dict[str, Any], Field(min_length=1)]


def _stated_rates(section: ElectricitySection | None) -> set[str]:
    rates = ("price", "carbon")
    return {key for key in rates if section is not None and getattr(section, key) is not None}


class Scenario(Section):
    """A question, the jobs and the cluster that it is about, and the variants to compare."""

    name: Annotated[str, Field(pattern=f"^{PATTERN}$", max_length=LONGEST)]
    """Name of the results."""
    question: str = ""
    """The question that the comparison answers."""
    cluster: AnyCluster
    workload: Workload
    objective: ObjectiveSection = ObjectiveSection()
    occupancy: Occupancy = "simulated"
    """Whether decisions change how long a job holds its GPUs, or it is the recorded time."""
    profiling: Profiling = "measured"
    """Whether `Tune` gets the measurements of profiling after the profiled epoch, or before."""
    rng: Literal["named", "published"] = "named"
    """Random streams by name, with the same draws for all variants; or those of the published Zeus
    simulator, where the names of a trace's groups are the seeds of its jobs: `seeds` change nothing
    there."""
    latencies: LatenciesSection | Literal["recorded"] | None = None
    """Latencies of live runs other than training; none if absent. `recorded`: as recorded with the
    profiles, and so `cluster.preemption` if it is absent."""
    live: LiveSection | None = None
    """Settings of `--live`; the defaults if absent."""
    accounting: AccountingSection = AccountingSection()
    """Window over which the energy of the cluster is counted; by default from the first submission
    to the last end over all variants."""
    electricity: ElectricitySection | None = None
    """What the energy of the cluster costs and emits; not counted if absent."""
    zoo: ZooSection | None = None
    """A store of trained models; none if absent. A trace must name the models that jobs train."""
    max_attempts: PositiveInt = 20
    """Number of failed attempts after which a job is given up."""
    policies: Policies = Policies()
    """Policies of all variants; by default first in first out, first fit, default batch size and
    highest power limit."""
    variants: Annotated[dict[Label, Variant], Field(min_length=1)]
    """The variants to compare, by name."""
    baseline: str
    """The variant that the others are compared with."""
    seeds: (
        Annotated[int, Field(gt=0, le=MAX_SEEDS)]
        | Annotated[
            tuple[Seed, ...],
            Field(min_length=1, max_length=MAX_SEEDS),
            AfterValidator(_check_distinct),
        ]
    ) = 1
    """A number of seeds, from 1 on, or a list of them."""
    sweep: Axes | Annotated[tuple[Axes, ...], Field(min_length=1)] | None = None
    """Run it at many points: lists of values by the dotted path of a key, each with each; or a list
    of such mappings, one after the other. A value that is no list is the only one."""

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
            if variant.baseline is not None and variant.baseline not in variants:
                raise PydanticCustomError(
                    "elsewhere", no_variant(variant.baseline, variants), {"at": (name, "baseline")}
                )
        return variants

    @model_validator(mode="after")
    def _overrides_fit(self) -> Self:
        """Refuse keys of variants that this kind of workload does not have."""
        kind = self.workload.kind
        for name, variant in self.variants.items():
            size = variant.workload or WorkloadSize()
            faults = {
                ("workload", "load"): size.load is not None and kind != "trace",
                ("workload", "recurrences"): size.recurrences is not None and kind != "recurring",
                ("cluster",): variant.cluster is not None and kind == "search",
            }
            for path, wrong in faults.items():
                if wrong:
                    what = f"{path[-1]}: a variant cannot override it for a workload of kind {kind}"
                    raise PydanticCustomError("elsewhere", what, {"at": ("variants", name, *path)})
        return self

    @model_validator(mode="after")
    def _electricity_of_variants(self) -> Self:
        stated = _stated_rates(self.electricity)
        for name, variant in self.variants.items():
            own = variant.electricity
            if own is not None and _stated_rates(own) != stated:
                raise PydanticCustomError(
                    "elsewhere",
                    "electricity: a variant states the same of price and carbon as the scenario, "
                    "which states {stated}",
                    {"at": ("variants", name, "electricity"),
                     "stated": " and ".join(sorted(stated)) or "none"},
                )  # fmt: skip
        return self

    @model_validator(mode="after")
    def _recorded_jobs(self) -> Self:
        recorded = any(
            (variant.occupancy or self.occupancy) == "recorded"
            for variant in self.variants.values()
        )
        if recorded and not isinstance(self.workload, TraceWorkload):
            raise ValueError("occupancy: recorded needs a workload of kind trace")
        if self.latencies is not None and (
            recorded
            or isinstance(self.workload, ArchitectureSearch)
            or self.workload.profiles is None
        ):
            raise PydanticCustomError(
                "elsewhere",
                "latencies: they need profiles that they come on top of (workload.profiles), and "
                "occupancy: simulated; a live run takes what it takes, so leave them out there",
                {"at": ("latencies",)},
            )
        zoos = [self.zoo, *(variant.zoo for variant in self.variants.values())]
        if any(zoos) and (recorded or isinstance(self.workload, RecurringWorkload)):
            raise ValueError(
                "zoo: it needs a workload of kind trace or search, and occupancy: simulated"
            )
        return self


def no_variant(name: str, variants: Mapping[str, Variant]) -> str:
    """The message on a variant that does not exist."""
    return f"no variant {name!r}; there is {', '.join(variants)}"
