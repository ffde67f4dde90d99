"""Synthetic profiles of GPUs and workloads, from a small analytical model of both.

The model is an assumption, chosen for its shape and fitted to nothing:

- Throughput at batch size ``b`` is ``peak * b / (b + half)``: it saturates.
- Utilisation is ``u = b / (b + half)``. Power without a cap is
  ``idle + (peak - idle) * (0.35 + 0.65 * u)``: even a small batch draws a third.
- A power cap lowers the clock to a share ``f`` of its highest. Dynamic power follows ``f ** 3``
  (frequency times voltage squared, voltage taken as proportional to frequency), so ``f`` is the
  largest share, at most 1, with ``idle + dynamic * f ** 3 <= cap``. Power never exceeds the cap.
- Of an epoch's time, the share ``compute_share`` grows with ``1 / f``; the rest waits for memory
  and does not depend on the clock.
- The mean number of epochs is a parabola in the logarithm of the batch size:
  ``best_epochs * exp(curvature * log2(b / best) ** 2)``. Runs scatter lognormally about it, are
  rounded to at least 1, and never reach the target if they would need more than ``max_epochs``.
- One GPU. No data loading limit, no memory limit, no leakage, no heat, no noise in time or power.
"""

import inspect
import math
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.traces.generate.synthetic_specs import GpuSpec, SyntheticProfiles, WorkloadSpec
from wattkeeper.traces.schema import CONVERGENCE, PROFILES, WORKLOADS
from wattkeeper.traces.trace import Trace

__all__ = ["GpuSpec", "OperatingPoint", "SyntheticProfiles", "WorkloadSpec", "generate", "point"]
EXPONENT: Final = 3.0
FLOOR: Final = 0.35
DIGITS: Final = 6
"""Decimals of seconds and watts, so that all machines write the same tables."""

TARGET: Final = 1.0
"""Target of every synthetic workload, which has no real metric."""


class OperatingPoint(NamedTuple):
    """State of a workload on a GPU at one batch size and power limit.

    Attributes:
        clock: Share of the highest clock, in (0, 1].
        throughput: Samples per second.
        power_w: Mean power in W; above idle, never above the limit.
    """

    clock: float
    throughput: float
    power_w: float


def point(gpu: GpuSpec, workload: WorkloadSpec, batch_size: int, limit_w: float) -> OperatingPoint:
    """Operating point of one configuration by the model.

    The batch size is in samples, the power limit in W, above the idle power of the GPU.
    """
    utilisation = batch_size / (batch_size + workload.half_batch)
    dynamic_w = (gpu.peak_power_w - gpu.idle_power_w) * (FLOOR + (1 - FLOOR) * utilisation)
    clock = min(1.0, ((limit_w - gpu.idle_power_w) / dynamic_w) ** (1 / EXPONENT))
    stretch = workload.compute_share / clock + 1 - workload.compute_share
    throughput = gpu.relative_speed * workload.peak_samples_per_s * utilisation / stretch
    power_w = min(gpu.idle_power_w + dynamic_w * clock**EXPONENT, limit_w)
    return OperatingPoint(clock, throughput, power_w)


def generate(spec: SyntheticProfiles, name: str) -> Trace:
    """Generate a trace of kind ``profiles``; the same spec gives the same bytes.

    Raises:
        InputError: If the name is not allowed.
        TraceError: If numbers of the spec overflow.
    """
    tables = {
        "profiles": pa.Table.from_pylist(list(_profile_rows(spec)), schema=PROFILES),
        "convergence": pa.Table.from_pylist(list(_run_rows(spec)), schema=CONVERGENCE),
        "workloads": pa.Table.from_pylist(
            [_workload_row(workload) for workload in spec.workloads], schema=WORKLOADS
        ),
    }
    assumptions = inspect.cleandoc(__doc__ or "").partition("\n- ")[2].split("\n- ")
    return Trace(
        name=name,
        kind="profiles",
        tables=tables,
        format="synthetic",
        origin="synthetic",
        source="computed by wattkeeper.traces.generate.synthetic; measured nowhere",
        licence="CC0-1.0",
        notes=tuple(" ".join(text.replace("``", "").split()) for text in assumptions if text),
        parameters=spec.model_dump(mode="json"),
    )


def _profile_rows(spec: SyntheticProfiles) -> Iterator[dict[str, Any]]:
    for gpu in spec.gpus:
        for workload in spec.workloads:
            for batch_size in sorted(workload.batch_sizes):
                for limit_w in gpu.limits_w:
                    state = point(gpu, workload, batch_size, limit_w)
                    seconds = round(workload.samples_per_epoch / state.throughput, DIGITS)
                    yield {
                        "workload": workload.name,
                        "gpu_type": gpu.name,
                        "gpus": 1,
                        "batch_size": batch_size,
                        "power_limit_w": limit_w,
                        "time_per_epoch_s": max(seconds, 10.0**-DIGITS),
                        "average_power_w": min(round(state.power_w, DIGITS), limit_w),
                    }


def _run_rows(spec: SyntheticProfiles) -> Iterator[dict[str, Any]]:
    for workload in spec.workloads:
        for batch_size in sorted(workload.batch_sizes):
            for run, epochs in enumerate(_epochs(spec, workload, batch_size), start=1):
                yield {
                    "workload": workload.name,
                    "batch_size": batch_size,
                    "run": run,
                    "target": TARGET,
                    "epochs": epochs,
                }


def _epochs(spec: SyntheticProfiles, workload: WorkloadSpec, batch_size: int) -> list[int | None]:
    """Epochs of each run; a stream of its own, so that other specs do not shift it."""
    stream = [spec.seed, zlib.crc32(b"epochs"), zlib.crc32(workload.name.encode()), batch_size]
    rng = np.random.default_rng(np.random.SeedSequence(stream))
    doublings = math.log2(batch_size / workload.best_batch_size)
    middle = math.log(workload.best_epochs) + workload.curvature * doublings**2
    logs = middle + workload.spread * rng.standard_normal(spec.runs)
    most = math.log(workload.max_epochs + 1)
    epochs = [max(1, round(math.exp(log))) if log < most else None for log in logs.tolist()]
    return [e if e is not None and e <= workload.max_epochs else None for e in epochs]


def _workload_row(workload: WorkloadSpec) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "dataset": "synthetic",
        "network": "synthetic",
        "optimizer": "synthetic",
        "target": TARGET,
        "higher_is_better": True,
        "max_epochs": workload.max_epochs,
        "default_batch_size": workload.default_batch_size,
        "samples_per_epoch": workload.samples_per_epoch,
    }
