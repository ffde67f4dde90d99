"""Columns of tables of measurements, and what such a table may say of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from wattkeeper.traces.measurements import Setting
from wattkeeper.traces.schema import field, table_schema

_text, _real, _whole = pa.string(), pa.float64(), pa.int32()

ROWS: Final = table_schema(
    "measurements",
    [],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("gpu_type", _text, "", "model of the GPU", "not empty"),
        field("gpus", _whole, "", "GPUs of the training", "> 0"),
        field("batch_size", _whole, "samples", "global batch size", "> 0"),
        field("per", _text, "", "what time and energy are of: epoch, step or run", "not empty"),
        field("time_s", _real, "s", "measured time of that", "> 0"),
        field("metric", _text, "", "name of the metric that ends a run", "not empty"),
        field("target", _real, "", "its value to reach", "finite"),
        field("higher_is_better", _text, "", "yes or no: whether the metric rises", "not empty"),
        field(
            "power_limit_w",
            _real,
            "W",
            "power limit of each GPU, if it was set",
            "> 0",
            optional=True,
        ),
        field(
            "clock_mhz", _whole, "MHz", "locked clock of each GPU, if it was", "> 0", optional=True
        ),
        field("energy_j", _real, "J", "measured energy, if it was", "> 0", optional=True),
        field(
            "power_w",
            _real,
            "W",
            "mean power of all GPUs or nodes together, in place of energy_j",
            "> 0",
            optional=True,
        ),
        field(
            "energy_of",
            _text,
            "",
            "what energy or power is of: gpu, node (at the plug) or facility",
            "not empty",
            optional=True,
        ),
        field(
            "nodes", _whole, "", "nodes of the training; needed unless of gpu", "> 0", optional=True
        ),
        field(
            "steps_per_epoch",
            _whole,
            "steps",
            "of the training; needed per step",
            "> 0",
            optional=True,
        ),
        field(
            "epochs", _whole, "epochs", "epochs of the run, if it is one", "> 0", optional=True
        ),
        field(
            "reached", _text, "", "yes or no: whether it reached the target", "not empty",
            optional=True,
        ),
        field("seed", _text, "", "random seed of the run", "not empty", optional=True),
        field(
            "default_batch_size",
            _whole,
            "samples",
            "used if nobody chooses; needed if there are several",
            "> 0",
            optional=True,
        ),
        field(
            "samples_per_epoch", _whole, "samples", "of the training set", "> 0", optional=True
        ),
        field("dataset", _text, "", "name of the data set", "not empty", optional=True),
        field("network", _text, "", "name of the model", "not empty", optional=True),
        field("optimizer", _text, "", "name of the optimizer", "not empty", optional=True),
    ],
)  # fmt: skip

EVALUATIONS: Final = table_schema(
    "evaluations",
    [],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("gpu_type", _text, "", "model of the GPU", "not empty"),
        field("gpus", _whole, "", "GPUs of the training", "> 0"),
        field("batch_size", _whole, "samples", "global batch size", "> 0"),
        field("seed", _text, "", "of the run, by which its row is found", "not empty"),
        field("epoch", _whole, "epochs", "after which it was evaluated", "> 0"),
        field("value", _real, "", "value of the metric", "finite"),
        field("time_s", _real, "s", "since the start of the run", ">= 0", optional=True),
    ],
)

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "per": ("epoch", "step", "run"),
    "higher_is_better": ("yes", "no"),
    "reached": ("yes", "no"),
}

ABOUT: Final[Mapping[str, str]] = {
    "name": "name of the trace",
    "source": "who measured it, or the paper it is from",
    "licence": "terms of use, as an SPDX name",
    "date": "when it was measured, as 2026-11-28",
    "version": "of this table",
    "hardware": "hosts: processors, boards, number of GPUs in each",
    "driver": "version of the driver",
    "cooling": "air, water or immersion",
    "window": "for how long each point was settled and measured",
    "repeats": "how often each point was measured",
}
"""What a table may say of itself; `traces describe` shows what it says and what it does not."""

PER_WORKLOAD: Final = ("metric", "target", "higher_is_better", "default_batch_size")
NAMES: Final = ("dataset", "network", "optimizer", "samples_per_epoch")
"""Columns that are the same in all rows of a workload."""

Row = Mapping[str, Any]
RunKey = tuple[str, str, int, int, str]
"""Workload, GPU type, GPUs, batch size and seed."""


def setting_of(row: Row) -> Setting:
    """What a row was measured with."""
    return Setting(*(row[name] for name in Setting._fields))


def run_key(row: Row) -> RunKey:
    """What a row of evaluations shares with that of its run."""
    return row["workload"], row["gpu_type"], row["gpus"], row["batch_size"], row["seed"]
