"""Models of what a power limit changes for jobs without a profile."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.scenarios.inputs.clusters import UsedCluster, model_of, stated_model
from wattkeeper.scenarios.inputs.measured_power import measured_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.spec.sections.cluster import UniformCluster
from wattkeeper.sim.replay.unprofiled import LimitModel, UnprofiledPower, limit_options
from wattkeeper.traces.gpu_time import held_gpus
from wattkeeper.traces.gpus.model import Boundness, GpuModel, curve, explain_unknown


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
    most_w = most_measured_w(unprofiled)
    for name in (spec.gpu_types[index] for index in indices):
        uniform = isinstance(used.stated, UniformCluster)
        key = "cluster.gpu_model" if uniform else f"cluster.power.{name}.model"
        model = model_of(used, name)
        why = ""
        if model is None:
            stated = stated_model(used, name)
            unknown = explain_unknown(stated if isinstance(stated, str) else name)
            why = f"{unknown}; name one ({key}: TYPE), or state its facts ({key}: {{...}})"
        elif model.min_limit_w is None:
            why = f"the lowest power limit of {model.gpu_type} is not recorded: state it ({key})"
        if model is None or why:
            what = f"tune: {tune.kind} limits jobs without a profile, and {why}"
            raise PolicyError(what, "tune")
        model = _cover(model, max(most_w, spec.power[name].busy_w or 0.0))
        with explain_failures(tune, tune.check):
            tune.check(limit_options(name, 1, model.limits_w))
        yield name, model


def most_measured_w(jobs: pa.Table, below_w: float = math.inf) -> float:
    """The highest measured power of one GPU of a job, up to a bound, W; 0 if none was measured."""
    power_w: Floats = np.array(measured_power(jobs) or np.full(len(jobs), np.nan), np.float64)
    each_w = power_w / held_gpus(jobs)
    return float(np.max(each_w[each_w <= below_w], initial=0.0))


def _cover(model: GpuModel, most_w: float) -> GpuModel:
    """The model with the limits whose effect is known on jobs that draw up to so much, W.

    Raises:
        PolicyError: If there are none.
    """
    lowest_w = model.lowest_limit_w(most_w)
    if lowest_w is not None and lowest_w > model.default_limit_w:
        raise PolicyError(
            f"tune: the sweep of {model.gpu_type} is of a load that draws {model.busy_w:g} W "
            f"without a limit; of a job that draws {most_w:g} W it says nothing under its limits",
            "tune",
        )
    return model._replace(min_limit_w=lowest_w)
