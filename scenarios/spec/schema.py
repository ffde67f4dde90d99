"""The schema of scenario files."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.spec.case_names import split_case
from wattkeeper.scenarios.spec.sections.cluster import AnyCluster, MixedCluster
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection
from wattkeeper.scenarios.spec.sections.live import LiveSection
from wattkeeper.scenarios.spec.sections.policies import Policies
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.settings import (
    AccountingSection,
    LatenciesSection,
    LeagueSection,
    ObjectiveSection,
    ZooSection,
)
from wattkeeper.scenarios.spec.sections.signals import PauseMode, SignalSection
from wattkeeper.scenarios.spec.sections.values import Label, check_distinct
from wattkeeper.scenarios.spec.sections.variant import Variant
from wattkeeper.scenarios.spec.sections.workload import Workload, WorkloadSize
from wattkeeper.sim.replay.backend import Occupancy, Profiling
from wattkeeper.traces.files.names import LONGEST, PATTERN

MAX_SEEDS = 10_000

Seed = Annotated[int, Field(ge=0)]

Axes = Annotated[dict[str, Any], Field(min_length=1)]


def _stated_rates(section: ElectricitySection | None) -> set[str]:
    rates = ("price", "carbon")
    return {key for key in rates if section is not None and getattr(section, key) is not None}


def _elsewhere(what: str, *place: str) -> PydanticCustomError:
    return PydanticCustomError("elsewhere", what, {"at": place})


class Scenario(Section):
    """A question, the jobs and the cluster that it is about, and the variants to compare.

    A field for each key of a scenario file.
    """

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
    signals: dict[Label, SignalSection] = Field(default_factory=dict)
    """Series of values over time that policies read, by name."""
    pauses: PauseMode = "free"
    """Whether a job that `tune` pauses gives its GPUs up, as one that is preempted, or holds them
    at idle power. Either way it is restored when it resumes (`cluster.preemption`)."""
    bound: Literal["carbon", "price", "energy", "types"] | None = None
    """`carbon`, `price`, `energy`: computes the least emissions, cost or energy at which each job
    could have met its deadline, with the future known: a bound for all variants. `types`: the least
    energy at which the jobs of each run could have been divided between the GPU types, with the
    mean time of completion that they had."""
    league: LeagueSection | None = None
    """Compares the regret of all variants, pair by pair of workload and GPU type."""
    zoo: ZooSection | None = None
    """A store of trained models; none if absent. A trace must name the models that jobs train."""
    max_attempts: PositiveInt = 20
    """Number of failed attempts after which a job is given up."""
    policy_files: tuple[str, ...] = ()
    """Python files whose policies and forecasts can be named in this scenario."""
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
            AfterValidator(check_distinct),
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

    @field_validator("variants")
    @classmethod
    def _cases_are_cases(cls, variants: dict[str, Variant]) -> dict[str, Variant]:
        for name, variant in variants.items():
            base, case = split_case(name) or ("", None)
            if base in variants and variant.boundness != case:
                raise PydanticCustomError(
                    "elsewhere",
                    "variants: {name} is the name of a case of {base}; state its case "
                    "(boundness: {case}), or choose another name",
                    {"at": (name,), "name": repr(name), "base": repr(base), "case": case},
                )
        return variants

    @model_validator(mode="after")
    def _overrides_fit(self) -> Self:
        """Refuse keys of variants that this kind of workload does not have."""
        workload = self.workload
        for name, variant in self.variants.items():
            sizes = sorted(variant.workload or WorkloadSize())
            wrong: list[tuple[str, ...]] = [
                ("workload", key)
                for key, value in sizes
                if value is not None and key not in workload.overrides
            ]
            if variant.cluster is not None and not workload.varies_clusters:
                wrong.append(("cluster",))
            for path in wrong:
                raise _elsewhere(
                    f"{path[-1]}: a variant cannot override it for a workload of kind "
                    f"{workload.kind}",
                    *("variants", name, *path),
                )
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
                    {
                        "at": ("variants", name, "electricity"),
                        "stated": " and ".join(sorted(stated)) or "none",
                    },
                )
        return self

    @model_validator(mode="after")
    def _bound_is_possible(self) -> Self:
        if self.bound is None:
            return self
        if not self.workload.has_bound:
            raise _elsewhere("bound: it needs a workload of kind recurring or trace", "bound")
        if self.bound in ("carbon", "price") and self.bound not in _stated_rates(self.electricity):
            raise _elsewhere(f"bound: {self.bound} needs electricity.{self.bound}", "bound")
        return self

    @model_validator(mode="after")
    def _league_is_possible(self) -> Self:
        if self.league is None:
            return self
        for key in ("against", "oracle"):
            name = getattr(self.league, key)
            if name not in self.variants:
                raise _elsewhere(no_variant(name, self.variants), "league", key)
        if not self.workload.has_league or isinstance(self.cluster, MixedCluster):
            raise _elsewhere(
                "league: it needs a workload of kind recurring, on one GPU type (cluster.gpu)",
                "league",
            )
        if self.cluster.losses is not None:
            what = "losses: a league counts no attempts that lost nodes ended; leave them out"
            raise _elsewhere(what, "cluster", "losses")
        self._check_oracle(self.league)
        for name, variant in self.variants.items():
            for key in ("cluster", "objective", "workload"):
                if getattr(variant, key) is not None:
                    what = f"{key}: the variants of a league have the same one"
                    raise _elsewhere(what, "variants", name, key)
        return self

    def _check_oracle(self, league: LeagueSection) -> None:
        """Refuse a variant as the oracle of a league that does not know the future."""
        name, against = league.oracle, league.against
        policy = self.variants[name].policies.configure or self.policies.configure
        if policy is None or not policy.needs_foresight or name == against:
            raise _elsewhere(
                f"oracle: {name!r} is no bound for the others; name a variant with configure: "
                "oracle, and another one in `against`",
                "league",
                "oracle",
            )

    @model_validator(mode="after")
    def _recorded_jobs(self) -> Self:
        workload = self.workload
        recorded = any(
            (variant.occupancy or self.occupancy) == "recorded"
            for variant in self.variants.values()
        )
        if recorded and not workload.is_log:
            raise ValueError("occupancy: recorded needs a workload of kind trace")
        if self.latencies is not None and (recorded or not workload.is_profiled):
            raise _elsewhere(
                "latencies: they need profiles that they come on top of (workload.profiles), and "
                "occupancy: simulated; a live run takes what it takes, so leave them out there",
                "latencies",
            )
        zoos = [self.zoo, *(variant.zoo for variant in self.variants.values())]
        if any(zoos) and (recorded or not (workload.has_models or workload.needs_zoo)):
            raise ValueError(
                "zoo: it needs a workload of kind trace or search, or recurring with models, and "
                "occupancy: simulated"
            )
        if workload.needs_zoo and not any(zoos):
            raise _elsewhere(
                "models: there is no zoo that would keep them: say `zoo: {accuracy: 0.9}`",
                *("workload", "models"),
            )
        return self


def no_variant(name: str, variants: Mapping[str, Variant]) -> str:
    """The message on a variant that does not exist."""
    return f"no variant {name!r}{did_you_mean(name, variants)}; there is {', '.join(variants)}"
