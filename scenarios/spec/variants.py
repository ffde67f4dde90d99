"""Resolves the variants of a scenario, once for all of their runs."""

from dataclasses import dataclass

from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import Point, PolicyConfig, find_config
from wattkeeper.scenarios.spec.schema import Scenario
from wattkeeper.scenarios.spec.sections.settings import ZooSection
from wattkeeper.scenarios.spec.sections.workload import Workload
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSpec:
    """A variant of a scenario, with all that it leaves to the scenario filled in."""

    name: str
    workload: Workload
    policies: PolicySet
    rules: RunRules
    occupancy: Occupancy = "simulated"
    profiling: Profiling = "measured"
    published: bool = False
    window: tuple[float | None, float | None] = (None, None)
    boundness: Boundness = "middle"
    zoo: ZooSection | None = None


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The specification of one run: a variant with a seed; it can be pickled."""

    variant: VariantSpec
    seed: int


def resolve_variants(scenario: Scenario) -> dict[str, VariantSpec]:
    """The variants of a scenario, by name."""
    return {name: _resolve(scenario, name) for name in scenario.variants}


def _resolve(scenario: Scenario, name: str) -> VariantSpec:
    variant = scenario.variants[name]
    objective = variant.objective or scenario.objective
    occupancy = variant.occupancy or scenario.occupancy
    zoo = _merge_zoos(scenario.zoo, variant.zoo)
    decided = {"replan": scenario.workload.replans, "retain": zoo is not None}
    own = () if variant.workload is None else variant.workload
    sizes = {key: value for key, value in own if value is not None}
    return VariantSpec(
        name=name,
        workload=scenario.workload.model_copy(update=sizes),
        policies=PolicySet(
            **{
                point: policy_of(scenario, name, point)
                for point in DEFAULTS
                if decided.get(point, True)
            }
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
        zoo=zoo,
    )


def _merge_zoos(stated: ZooSection | None, own: ZooSection | None) -> ZooSection | None:
    """The scenario's zoo, overridden by the keys of the variant's zoo."""
    if own is None or stated is None:
        return own or stated
    return stated.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


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
