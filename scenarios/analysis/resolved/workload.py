"""What kind of workload a resolved scenario has."""

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.spec.sections.section import WorkloadSection
from wattkeeper.scenarios.spec.sections.workload import SECTIONS


def section_of(scenario: Json) -> type[WorkloadSection]:
    """The section of its workload; the base of all, of a kind that this version does not know."""
    return SECTIONS.get(scenario["workload"]["kind"], WorkloadSection)
