"""An ensemble of networks, with or without cores, trained in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.kinds.search import Metrics, Search
from wattkeeper.scenarios.spec.sections.ensemble import Ensemble
from wattkeeper.scenarios.spec.variants import RunSpec
from wattkeeper.sim.search.ensembles import CORE

if TYPE_CHECKING:
    from wattkeeper.live.search.search import SearchRun
    from wattkeeper.live.search.training_log import FinishedTraining


class EnsembleKind(Search):
    """Networks whose answers are averaged."""

    @override
    def begin(self, specs: Sequence[RunSpec], run: RunInputs, workers: int, ray: str | None) -> str:
        from wattkeeper.live.search.search import NETWORKS, derive_seed

        for spec in specs:
            workload = cast("Ensemble", spec.variant.workload)
            groups = workload.group(workload.members.draw(derive_seed(spec.seed, NETWORKS)))
            if workload.cores is not None and all(len(group.members) == 1 for group in groups):
                raise InputError(
                    f"cores: with seed {spec.seed}, each member of variant {spec.variant.name} is "
                    "alone in its group, so that there is no core; state a smaller share, or fewer "
                    "groups"
                )
        return super().begin(specs, run, workers, ray)

    @override
    def observe(self, search: SearchRun) -> Callable[[Sequence[FinishedTraining]], Metrics]:
        from wattkeeper.live.search.ensemble import MemberOutputs

        outputs = MemberOutputs(search.outputs_folder, search.digits.test)
        search.observers.append(outputs.keep)

        def measure(trained: Sequence[FinishedTraining]) -> Metrics:
            cores = [record for record in trained if record.model.startswith(CORE)]
            members = [record for record in trained if not record.model.startswith(CORE)]
            return {
                "accuracy": math.fsum(record.accuracy for record in members) / len(members),
                "ensemble_accuracy": outputs.measure_accuracy([each.model for each in members]),
                "core_work": float(sum(record.work for record in cores)),
                "cores": float(len(cores)),
            }

        return measure


KIND = EnsembleKind()
