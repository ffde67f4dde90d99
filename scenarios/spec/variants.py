"""Resolves a scenario into the specifications of its runs."""

from dataclasses import dataclass

from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import Point, PolicyConfig, find_config
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.cluster import MixedCluster, UniformCluster
from wattkeeper.scenarios.spec.sections.elastic import ElasticWorkload
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection
from wattkeeper.scenarios.spec.sections.settings import ZooSection
from wattkeeper.scenarios.spec.sections.workload import (
    PerConfiguration,
    RecurringWorkload,
    TraceWorkload,
)
from wattkeeper.sim.engine.run_config import PolicySet, RunRules
from wattkeeper.sim.replay.backend import Occupancy, Profiling
from wattkeeper.traces.gpus.model import Boundness

DEFAULTS: dict[Point, str] = {
    "configure": "fixed",
    "tune": "max-power",
    "select": "fifo",
    "place": "first-fit",
    "replan": "oobleck",
    "retain": "keep-all",
}
"""The default policy of each decision point that a scenario may choose one for."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The specification of one run: a variant with a seed; it can be pickled."""

    variant: str
    seed: int
    policies: PolicySet
    rules: RunRules
    occupancy: Occupancy
    profiling: Profiling
    published: bool
    window: tuple[float | None, float | None] = (None, None)
    boundness: Boundness = "middle"
    zoo: ZooSection | None = None


def occupancy_of(scenario: Scenario, variant: str) -> Occupancy:
    """The variant's own occupancy, or the scenario's."""
    return scenario.variants[variant].occupancy or scenario.occupancy


def cluster_of(scenario: Scenario, variant: str) -> UniformCluster | MixedCluster:
    """The scenario's cluster with what the variant overrides."""
    return scenario.variants[variant].cluster or scenario.cluster


def load_of(scenario: Scenario, variant: str) -> float:
    """What submission times are divided by in a variant; 1 where there is no trace."""
    size = scenario.variants[variant].workload
    if size is not None and size.load is not None:
        return size.load
    return scenario.workload.load if isinstance(scenario.workload, TraceWorkload) else 1.0


def recurrences_of(scenario: Scenario, variant: str) -> int | PerConfiguration:
    """How often each workload recurs in a variant, where jobs recur."""
    assert isinstance(scenario.workload, RecurringWorkload)
    size = scenario.variants[variant].workload
    own = None if size is None else size.recurrences
    return scenario.workload.recurrences if own is None else own


def run_specs(scenario: Scenario) -> list[RunSpec]:
    """The runs of a scenario: each variant with each seed."""
    return [
        _run_spec(scenario, name, seed) for name in scenario.variants for seed in scenario.all_seeds
    ]


def _run_spec(scenario: Scenario, name: str, seed: int) -> RunSpec:
    variant = scenario.variants[name]
    objective = variant.objective or scenario.objective
    occupancy = occupancy_of(scenario, name)
    return RunSpec(
        variant=name,
        seed=seed,
        policies=PolicySet(
            **{point: policy_of(scenario, name, point) for point in points_of(scenario, name)}
        ),
        rules=RunRules(
            Objective(objective.eta),
            scenario.max_attempts,
            occupancy == "recorded",
            scenario.pauses == "hold",
        ),
        occupancy=occupancy,
        profiling=variant.profiling or scenario.profiling,
        published=scenario.rng == "published",
        window=(scenario.accounting.from_s, scenario.accounting.until_s),
        boundness=variant.boundness or "middle",
        zoo=zoo_of(scenario, name),
    )


def electricity_of(scenario: Scenario, variant: str) -> ElectricitySection | None:
    """What electricity costs and emits: the variant's own, or the scenario's."""
    return scenario.variants[variant].electricity or scenario.electricity


def zoo_of(scenario: Scenario, variant: str) -> ZooSection | None:
    """The scenario's zoo, overridden by the keys of the variant's zoo."""
    own = scenario.variants[variant].zoo
    if own is None or scenario.zoo is None:
        return own or scenario.zoo
    return scenario.zoo.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


def points_of(scenario: Scenario, variant: str) -> list[Point]:
    """The decision points at which something is decided in a variant."""
    elastic, zoo = isinstance(scenario.workload, ElasticWorkload), zoo_of(scenario, variant)
    decided = {"replan": elastic, "retain": zoo is not None}
    return [point for point in DEFAULTS if decided.get(point, True)]


def fixed_batch_size(scenario: Scenario) -> int | None:
    """The batch size that the baseline fixes for all jobs; None if it fixes no other than theirs.

    What is relative to run times (deadlines by slack, intervals) is so in all variants alike, so
    that they compare the same jobs.
    """
    chosen = policy_of(scenario, scenario.baseline, "configure").parts[-1]
    return chosen.batch_size if isinstance(chosen, FixedConfig) else None


def policy_of(scenario: Scenario, variant: str, point: Point) -> PolicyConfig:
    """The variant's policy of a decision point, or the scenario's, or the default.

    A policy that stands at both `configure` and `tune` is stated as the former.
    """
    if point == "tune" and (configure := policy_of(scenario, variant, "configure")).tunes:
        return configure
    for chosen in (scenario.variants[variant].policies, scenario.policies):
        config: PolicyConfig | None = getattr(chosen, point)
        if config is not None:
            return config
    return find_config(point, DEFAULTS[point])
