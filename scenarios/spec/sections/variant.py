"""The section of scenario files on a variant."""

from wattkeeper.scenarios.spec.sections.cluster import AnyCluster
from wattkeeper.scenarios.spec.sections.electricity import ElectricitySection
from wattkeeper.scenarios.spec.sections.policies import Policies
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.settings import ObjectiveSection, ZooSection
from wattkeeper.scenarios.spec.sections.workload import WorkloadSize
from wattkeeper.sim.replay.backend import Occupancy, Profiling
from wattkeeper.traces.gpus.model import Boundness


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
