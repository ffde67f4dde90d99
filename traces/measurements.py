"""From measured epochs to the tables of a trace of profiles.

A configuration is a workload on a number of GPUs of one type, at a batch size and a power limit or
locked clock. Its time of an epoch is that of all its runs over their epochs, and so is its energy:
the mean over runs is exactly what was measured. Of each run to the target, the time and energy of
an epoch are kept relative to these means, so that a replay has the spread of the recorded runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.schema import CONVERGENCE, CURVES, PROFILES, WORKLOADS

NOT_STATED: Final = "not stated"
"""Name of a data set, model or optimizer that nobody stated."""


class Setting(NamedTuple):
    """What a profile was recorded with.

    Attributes:
        workload: What was trained.
        gpu_type: Model of the GPUs.
        gpus: Their number.
        batch_size: Global batch size, samples.
        power_limit_w: Of each GPU, W; None: not stated.
        clock_mhz: Locked clock of each GPU, MHz; None: free.
    """

    workload: str
    gpu_type: str
    gpus: int
    batch_size: int
    power_limit_w: float | None = None
    clock_mhz: int | None = None


class Evaluation(NamedTuple):
    """A value of the metric in a run.

    Attributes:
        epoch: After which it was taken.
        metric: Name of the metric.
        value: Its value.
        time_s: Since the start of the run, s; None: not known.
    """

    epoch: int
    metric: str
    value: float
    time_s: float | None = None


class MeasuredEpochs(NamedTuple):
    """Measured epochs: a run to the target, or some epochs of a training.

    Attributes:
        setting: What it was measured with.
        epoch_s: Time of an epoch, s.
        epoch_j: Energy of an epoch, J; None: not measured.
        energy_of: What that is of; None: not measured.
        nodes: Number of nodes; None: not stated.
        epochs: Number of epochs of the run; None: it is no run to the target.
        reached: Whether the run reached the target.
        seed: Of the run; None: not stated.
        evaluations: Of the run.
        where: The place that it was read from, for messages.
    """

    setting: Setting
    epoch_s: float
    epoch_j: float | None = None
    energy_of: str | None = None
    nodes: int | None = None
    epochs: int | None = None
    reached: bool = False
    seed: str | None = None
    evaluations: tuple[Evaluation, ...] = ()
    where: str = ""


class MeasuredWorkload(NamedTuple):
    """What was trained; fields as in the canonical table, and None where they are not stated."""

    workload: str
    metric: str
    target: float
    higher_is_better: bool
    default_batch_size: int
    dataset: str | None = None
    network: str | None = None
    optimizer: str | None = None
    samples_per_epoch: int | None = None


def build_tables(
    measurements: Sequence[MeasuredEpochs], workloads: Sequence[MeasuredWorkload]
) -> dict[str, pa.Table]:
    """The tables of a trace of profiles.

    Raises:
        TraceError: If some measurements of a configuration have energy, epochs or a boundary, and
            others have not; the message names both places.
    """
    by_setting: dict[Setting, list[MeasuredEpochs]] = defaultdict(list)
    for measured in measurements:
        by_setting[measured.setting].append(measured)
    profiles: list[Mapping[str, Any]] = []
    convergence: list[Mapping[str, Any]] = []
    curves: list[Mapping[str, Any]] = []
    targets = {workload.workload: workload.target for workload in workloads}
    longest: dict[str, int] = {}
    numbers: dict[tuple[str, int], int] = defaultdict(int)
    for setting, rows in by_setting.items():
        _check_alike(rows)
        mean_s, mean_j = _means(rows)
        profiles.append(_profile(rows[0], mean_s, mean_j))
        for row in rows:
            if row.epochs is None:
                continue
            workload, size = setting.workload, setting.batch_size
            longest[workload] = max(longest.get(workload, 0), row.epochs)
            run = numbers[workload, size]
            numbers[workload, size] = run + 1
            place = {"workload": workload, "batch_size": size, "run": run}
            place |= {"gpu_type": setting.gpu_type, "gpus": setting.gpus}
            own = {
                "target": targets[workload],
                "epochs": row.epochs if row.reached else None,
                "seed": row.seed,
                "time_ratio": row.epoch_s / mean_s,
                "energy_ratio": None if row.epoch_j is None else row.epoch_j / mean_j,
            }
            convergence.append(place | own)
            curves += [place | each._asdict() for each in row.evaluations]
    tables = {
        "profiles": pa.Table.from_pylist(profiles, PROFILES),
        "convergence": pa.Table.from_pylist(convergence, CONVERGENCE),
        "workloads": pa.Table.from_pylist(
            [_workload(each, longest.get(each.workload, 1)) for each in workloads], WORKLOADS
        ),
    }
    return tables | ({"curves": pa.Table.from_pylist(curves, CURVES)} if curves else {})


def _check_alike(rows: Sequence[MeasuredEpochs]) -> None:
    """Refuse a configuration that is measured in part."""
    first = rows[0]
    for row in rows[1:]:
        for what, has, had in (
            ("energy", row.epoch_j is not None, first.epoch_j is not None),
            ("epochs", row.epochs is not None, first.epochs is not None),
        ):
            if has != had:
                state = "states" if has else "does not state"
                text = f"{state} {what}, other than {first.where} of the same configuration"
                raise TraceError(f"{text}: either all or none of them do", row.where)
        if (row.energy_of, row.nodes) != (first.energy_of, first.nodes):
            text = f"energy_of and nodes are {row.energy_of} and {row.nodes}, other than in"
            raise TraceError(f"{text} {first.where} of the same configuration", row.where)


def _means(rows: Sequence[MeasuredEpochs]) -> tuple[float, float]:
    """Mean time (s) and energy (J) of an epoch: of the runs that reached the target, if any did.

    NaN for energy that was not measured.
    """
    counted = [row for row in rows if row.reached] or rows
    epochs = math.fsum(row.epochs or 1 for row in counted)
    time_s = math.fsum((row.epochs or 1) * row.epoch_s for row in counted) / epochs
    if rows[0].epoch_j is None:
        return time_s, math.nan
    energy_j = math.fsum((row.epochs or 1) * (row.epoch_j or 0.0) for row in counted)
    return time_s, energy_j / epochs


def _profile(row: MeasuredEpochs, mean_s: float, mean_j: float) -> Mapping[str, Any]:
    return {
        **row.setting._asdict(),
        "time_per_epoch_s": mean_s,
        "average_power_w": None if math.isnan(mean_j) else mean_j / mean_s,
        "energy_of": row.energy_of,
        "nodes": row.nodes,
    }


def _workload(workload: MeasuredWorkload, max_epochs: int) -> Mapping[str, Any]:
    stated = {key: value for key, value in workload._asdict().items() if value is not None}
    unknown = dict.fromkeys(("dataset", "network", "optimizer"), NOT_STATED)
    return unknown | stated | {"max_epochs": max_epochs}
