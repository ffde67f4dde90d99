"""Models of what a power limit changes for jobs without a profile."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.inputs.clusters import UsedCluster, name_gpu_model
from wattkeeper.scenarios.inputs.measured_power import measured_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.spec.sections.cluster import UniformCluster
from wattkeeper.sim.replay.unprofiled import LimitModel, UnprofiledPower, limit_options
from wattkeeper.traces.gpus.model import (
    Boundness,
    GpuModel,
    curve,
    find_gpu_model,
    gpu_models,
    suggest_gpu_type,
)


class ModelledLimits(LimitModel):
    """Power limits of a GPU type by whole watts, and what they change in a case of boundness."""

    def __init__(self, model: GpuModel, case: Boundness) -> None:
        self.limits_w = model.limits_w
        self._curve = curve(model, case)
        self._known: dict[tuple[float, float], tuple[float, float]] = {}

    @override
    def under_limit(self, limit_w: float, busy_w: float) -> tuple[float, float]:
        key = limit_w, busy_w
        if key not in self._known:
            self._known[key] = self._curve.under_limit(*key)
        return self._known[key]


def unprofiled_power(inputs: RunInputs, case: Boundness = "middle") -> UnprofiledPower:
    """Power of the jobs of a run without a profile, with limits in a case of boundness."""
    limits = {name: ModelledLimits(model, case) for name, model in inputs.limits.items()}
    return UnprofiledPower(inputs.cluster.busy_w, limits, measured_power(inputs.jobs))


def limited_types(
    jobs: pa.Table, used: UsedCluster, tune: PolicyConfig
) -> Iterator[tuple[str, GpuModel]]:
    """The GPU types on which a policy limits jobs without a profile, each with its model.

    Raises:
        PolicyError: If there is no model of one, or it does not allow the limit.
    """
    spec = used.spec
    unprofiled = jobs.filter(pc.is_null(jobs["workload"]))
    asked = pc.unique(unprofiled["gpu_type"]).to_pylist()
    indices = sorted({index for names in asked for index in spec.types_allowed(names)})
    for name in (spec.gpu_types[index] for index in indices):
        model_name = name_gpu_model(used, name)
        model = find_gpu_model(model_name)
        if model is None:
            known = ", ".join(model.gpu_type for model in gpu_models())
            key = "gpu_model" if isinstance(used.stated, UniformCluster) else f"power.{name}.model"
            raise PolicyError(
                f"tune: {tune.kind} limits jobs without a profile, and there is no power model of "
                f"GPU type {model_name!r}{suggest_gpu_type(model_name)}; name one "
                f"(cluster.{key}): {known}",
                "tune",
            )
        with explain_failures(tune, tune.check):
            tune.check(limit_options(name, 1, model.limits_w))
        yield name, model
