"""What a kind of workload is: the steps of a scenario in which kinds differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from wattkeeper.scenarios.inputs.clusters import UsedCluster
from wattkeeper.scenarios.inputs.run_inputs import RunInputs, ScenarioInputs
from wattkeeper.scenarios.kinds import simulation
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.scenarios.spec.variants import RunSpec, VariantSpec
from wattkeeper.sim.cluster_results.tables import ClusterResult

if TYPE_CHECKING:
    from wattkeeper.policies.json_types import Json
    from wattkeeper.scenarios.analysis.manifest import LiveReport

Clusters = Sequence[UsedCluster]

SIMULATED_ONLY = (
    "workload.kind: a scenario of kind {kind} is simulated only; leave out --live, or train under "
    "its policies as docs/live-{kind}.md shows"
)


class WorkloadKind:
    """How the workloads of a kind are read, checked, run and reported.

    Attributes:
        not_live: Why no live run can have such jobs; empty if one can.
        is_simulated: Whether all that its runs do is simulated, unless they are live.
        rents_nodes: Whether the nodes of its jobs are paid for by the hour.
        tries_parents: Whether its runs can try several parents of a model.
        libraries: Libraries that results of this kind alone depend on.
    """

    not_live: ClassVar[str] = ""
    is_simulated: ClassVar[bool] = True
    rents_nodes: ClassVar[bool] = False
    tries_parents: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    def read(self, loaded: LoadedScenario, clusters: Clusters, live: bool) -> ScenarioInputs:
        """Jobs and profiles of all variants, checked against the clusters that they run on.

        Raises:
            InputError: If they are absent, broken, or do not fit; the message names the place in
                the scenario or in the trace.
        """
        raise NotImplementedError

    def check_policies(self, variant: VariantSpec, run: RunInputs) -> None:
        """Refuse policies that choose what jobs of this kind do not have.

        Raises:
            InputError: If a variant states what they do not have.
            PolicyError: If one of its policies decides on it.
        """

    def begin(self, specs: Sequence[RunSpec], run: RunInputs, workers: int, ray: str | None) -> str:
        """Check that runs can be done here; a line that the user should know, or empty."""
        return ""

    def execute(self, spec: RunSpec, inputs: RunInputs) -> ClusterResult:
        """Run one variant with one seed."""
        return simulation.execute(spec, inputs)

    def report(self, specs: Sequence[RunSpec], run: RunInputs) -> LiveReport | None:
        """The part of the manifest on what was really trained; None if all was simulated."""
        return None

    def add_to_summary(
        self, summary: Json, results: Sequence[ClusterResult], baseline: str
    ) -> None:
        """Add to the summary what is compared in this kind alone."""

    def list_modelled(
        self, inputs: ScenarioInputs, results: Sequence[ClusterResult]
    ) -> Iterator[str]:
        """What of the models that were trained, and of their parents' benefit, is modelled."""
        if inputs.any_run.trained or not any("models" in result.tables for result in results):
            return
        from wattkeeper.sim.engine.warm_start import shipped

        warm = shipped()
        what = "placeholder, not measured" if warm.placeholder else warm.source
        yield f"training time saved by parents, and accuracies (warm_start.json: {what})"
        yield "accuracies from scratch where the trace has none (zoo.accuracy)"
        if inputs.any_run.jobs is None:
            yield "networks of the jobs: mutations of a small one (workload.models)"


@cache
def find_kind(name: str) -> WorkloadKind:
    """The kind of workload of that name: `KIND` of the module of that name in this room."""
    kind: WorkloadKind = import_module(f"wattkeeper.scenarios.kinds.{name}").KIND
    return kind
