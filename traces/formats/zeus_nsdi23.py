"""Recorded profiles of Zeus (NSDI '23): six workloads, four GPU types, one GPU each.

``summary_train.csv``: epochs to a target metric by workload, batch size and run.
``summary_power_<gpu>.csv``: seconds an epoch and mean watts by workload, batch size and limit.
A column ``clock_mhz``, which the published files do not have, says that clocks were locked; the
limit is the highest one then, or left empty.
Targets, largest numbers of epochs and default batch sizes are the constants of the published
simulator (ml-energy/zeus, ``_legacy``), not part of the files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.clock_rows import check_clock_rows
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import CsvFile, read_csv
from wattkeeper.traces.schema import CONVERGENCE, PROFILES, WORKLOADS, field, table_schema
from wattkeeper.traces.tables import build_table
from wattkeeper.traces.trace import Trace

SOURCE: Final = (
    "J. You, J.-W. Chung, M. Chowdhury. Zeus: Understanding and Optimizing GPU Energy Consumption "
    "of DNN Training. NSDI 2023. Traces: https://github.com/ml-energy/zeus"
)
TRAIN_FILE: Final = "summary_train.csv"
POWER_FILE: Final = re.compile(r"summary_power_([A-Za-z0-9-]+)\.csv")


class Constants(NamedTuple):
    """The published simulator's constants of a data set, and the size of its training set.

    Attributes:
        target: Value of the metric that ends a run.
        higher_is_better: False for an error rate.
        max_epochs: A run is given up after so many.
        default_batch_size: The largest over the GPU types; each one takes at most the largest
            batch size of its own power table.
        samples_per_epoch: Samples of the training set; no part of the simulator. Of MovieLens with
            four negative samples for each rating (He et al., WWW '17), of SQuAD in windows of 384
            tokens; of Sentiment140, which trainings take in part, an assumption. It sizes slices.
    """

    target: float
    higher_is_better: bool
    max_epochs: int
    default_batch_size: int
    samples_per_epoch: int


CONSTANTS: Final[Mapping[str, Constants]] = {
    "cifar100": Constants(0.60, True, 100, 1024, 50_000),
    "imagenet": Constants(0.65, True, 100, 256, 1_281_167),
    "squad": Constants(84.0, True, 6, 32, 88_524),
    "librispeech": Constants(40.0, False, 16, 192, 281_241),
    "movielens-1m": Constants(0.41, True, 100, 1024, 4_970_845),
    "sentiment140": Constants(0.84, True, 10, 128, 425_000),
}

_what = (
    field("dataset", pa.string(), "", "data set", "not empty"),
    field("network", pa.string(), "", "model", "not empty"),
    field("batch_size", pa.int32(), "samples", "batch size", "> 0"),
    field("optimizer", pa.string(), "", "optimizer", "not empty"),
)
_job = ("dataset", "network", "optimizer", "batch_size")

TRAIN: Final = table_schema(
    "summary_train",
    [*_job, "run", "target_metric"],
    [
        *_what,
        field("run", pa.int32(), "", "number of the run", ">= 0"),
        field("target_metric", pa.float64(), "", "value of the metric", "finite"),
        field("target_epoch", pa.int32(), "epochs", "until the target", "> 0", null=True),
    ],
)

POWER: Final = table_schema(
    "summary_power",
    [*_job, "power_limit"],
    [
        *_what,
        field("power_limit", pa.float64(), "W", "power limit", "> 0", null=True),
        field("time_per_epoch", pa.float64(), "s", "duration of an epoch", "> 0"),
        field("average_power", pa.float64(), "W", "mean power", "> 0"),
        field("clock_mhz", pa.int32(), "MHz", "locked clock", "> 0", optional=True, key=True),
    ],
)

Identity = tuple[str, str, str]
"""Data set, network, optimizer."""


def read(paths: Sequence[Path]) -> Trace:
    """Read the folder, or its files.

    Raises:
        TraceError: If the training table or every power table is missing, or a file is wrong.
    """
    train_path, power_paths = _locate(paths)
    train = read_csv(train_path, TRAIN)
    power = {gpu: _read_power(path) for gpu, path in power_paths.items()}
    tables = [train.table, *(file.table for file in power.values())]
    names = _name_workloads(tables, train_path)
    named = {
        file.name: read_.sha256
        for file, read_ in zip(
            [train_path, *power_paths.values()], [train, *power.values()], strict=True
        )
    }
    return Trace(
        name="zeus-nsdi23",
        kind="profiles",
        tables={
            "profiles": pa.concat_tables(
                _profiles(gpu, file.table, names) for gpu, file in power.items()
            ),
            "convergence": _convergence(train.table, names),
            "workloads": _workloads(names),
        },
        format=FORMAT.name,
        origin="recorded",
        source=SOURCE,
        licence="Apache-2.0",
        inputs=named,
        notes=_notes(train, names),
    )


def _locate(paths: Sequence[Path]) -> tuple[Path, dict[str, Path]]:
    """The training table, and the power tables by GPU type in order of name."""
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise TraceError([Problem("no such file or folder", str(path)) for path in absent])
    files = []
    for path in paths:
        files += sorted(path.glob("summary_*.csv")) if path.is_dir() else [path]
    train = [file for file in files if file.name == TRAIN_FILE]
    power: dict[str, Path] = {}
    problems = []
    for file in files:
        match = POWER_FILE.fullmatch(file.name)
        if match and match[1].upper() not in power:
            power[match[1].upper()] = file
        elif match:
            problems.append(Problem(f"a second power table for {match[1].upper()}", str(file)))
        elif file.name != TRAIN_FILE:
            need = f"{TRAIN_FILE} and summary_power_<gpu>.csv"
            problems.append(Problem(f"is not one of {need}", str(file)))
    where = ", ".join(map(str, paths))
    if len(train) != 1:
        problems.append(Problem(f"{len(train)} files {TRAIN_FILE}; exactly one is needed", where))
    if not power:
        problems.append(Problem("no summary_power_<gpu>.csv; at least one is needed", where))
    if problems:
        raise TraceError(problems)
    return train[0], dict(sorted(power.items()))


def _read_power(path: Path) -> CsvFile:
    """A power table, with the rows of locked clocks checked."""
    file = read_csv(path, POWER)
    check_clock_rows(file.table, path, _job, "power_limit", needs_limits=True)
    return file


def _identities(table: pa.Table) -> list[Identity]:
    columns = (table[name].to_pylist() for name in ("dataset", "network", "optimizer"))
    return list(zip(*columns, strict=True))


def _name_workloads(tables: Iterable[pa.Table], train_path: Path) -> dict[Identity, str]:
    """Workload names in order of appearance: the first of a data set has the set's name."""
    names: dict[Identity, str] = {}
    known_names: set[str] = set()
    problems = []
    for identity in dict.fromkeys(i for table in tables for i in _identities(table)):
        dataset, _, optimizer = identity
        if dataset not in CONSTANTS:
            known = ", ".join(CONSTANTS)
            text = f"data set {dataset!r} has no published target; those that have: {known}"
            problems.append(Problem(text, str(train_path.parent)))
        names[identity] = name = f"{dataset}-{optimizer}" if dataset in known_names else dataset
        if name in known_names:
            text = f"two networks would be workload {name!r}; import one at a time"
            problems.append(Problem(text, str(train_path.parent)))
        known_names.add(name)
        if len(problems) >= MOST_FAULTS:
            break
    if problems:
        raise TraceError(problems)
    return names


def _profiles(gpu: str, table: pa.Table, names: Mapping[Identity, str]) -> pa.Table:
    columns = {
        "workload": pa.array([names[i] for i in _identities(table)]),
        "gpu_type": pa.array([gpu] * table.num_rows),
        "gpus": pa.array([1] * table.num_rows, pa.int32()),
        "batch_size": table["batch_size"],
        "power_limit_w": table["power_limit"],
        "time_per_epoch_s": table["time_per_epoch"],
        "average_power_w": table["average_power"],
        "clock_mhz": table["clock_mhz"],
    }
    return build_table(columns, PROFILES)


def _convergence(table: pa.Table, names: Mapping[Identity, str]) -> pa.Table:
    columns = {
        "workload": pa.array([names[i] for i in _identities(table)]),
        "batch_size": table["batch_size"],
        "run": table["run"],
        "target": table["target_metric"],
        "epochs": table["target_epoch"],
    }
    return build_table(columns, CONVERGENCE)


def _workloads(names: Mapping[Identity, str]) -> pa.Table:
    rows = []
    for (dataset, network, optimizer), name in names.items():
        constants = CONSTANTS[dataset]._asdict()
        what = {"workload": name, "dataset": dataset, "network": network, "optimizer": optimizer}
        rows.append(what | constants)
    return pa.Table.from_pylist(rows, schema=WORKLOADS)


def _notes(train: CsvFile, names: Mapping[Identity, str]) -> tuple[str, ...]:
    notes = [
        "Targets, largest numbers of epochs and default batch sizes are the published simulator's "
        "constants; they are not part of the files."
    ]
    if train.extra:
        notes.append(f"Unused columns of {TRAIN_FILE}: {', '.join(train.extra)}.")
    trained = set(_identities(train.table))
    if only := [name for identity, name in names.items() if identity not in trained]:
        notes.append(f"In the power tables only, without convergence: {', '.join(only)}.")
    return tuple(notes)


FORMAT: Final = Format(
    name="zeus-nsdi23",
    summary="recorded profiles of Zeus (NSDI '23): summary_train.csv, summary_power_<gpu>.csv",
    takes=f"the folder, or {TRAIN_FILE} and any number of summary_power_<gpu>.csv",
    read=read,
)
