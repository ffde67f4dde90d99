"""Readings of GPUs from one file, and what is wrong with its lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools
from wattkeeper.policies.errors import SHOWN, Problem
from wattkeeper.traces.power.spans import Readings
from wattkeeper.traces.readers.base import Kinds

NODES: Final = ("node", "host", "hostname", "instance")
GPUS: Final = ("index", "gpu", "gpu_id", "uuid", "gpu_uuid")
USAGE: Final = "dcgm_fi_dev_power_usage"
COUNTER: Final = "dcgm_fi_dev_total_energy_consumption"
SUFFIXES: Final = (".gz", ".csv", ".txt", ".log", ".prom")
BLANK: Final = 2147483632.0
"""DCGM's codes for "no value" are as high or higher."""
MILLISECONDS: Final = 1e11
"""Times since 1970 that are higher count milliseconds."""


class FileReadings(NamedTuple):
    """Readings of a file; `kinds`: how their times are written."""

    readings: Readings
    kinds: Kinds


class Faults:
    """Counts malformed lines, and keeps the first."""

    def __init__(self) -> None:
        self.rows = self.wrong = 0
        self.problems: list[Problem] = []

    def add(self, path: Path, faults: Mapping[int, str]) -> None:
        """Count the malformed lines of a file, by line number."""
        self.wrong += len(faults)
        for line in sorted(faults)[: SHOWN - len(self.problems)]:
            self.problems.append(Problem(faults[line], f"{path}, line {line}"))


def join(parts: Sequence[Readings]) -> Readings:
    """The readings of all parts."""
    columns: list[Any] = []
    for name in Readings._fields:
        values = [getattr(part, name) for part in parts]
        texts = name in ("node", "gpu")
        empty = pa.array([], pa.string()) if texts else np.zeros(0)
        columns.append(
            (pa.concat_arrays(values) if texts else np.concatenate(values)) if values else empty
        )
    return Readings(*columns)


def take(readings: Readings, rows: Bools) -> Readings:
    """Some of the readings, by a mask."""
    mask = pa.array(rows)
    return Readings(
        readings.node.filter(mask), readings.gpu.filter(mask), *(v[rows] for v in readings[2:])
    )


def host_of(path: Path) -> str:
    """The host that a file is named after."""
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or path.name
