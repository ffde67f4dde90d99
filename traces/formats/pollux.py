"""Step times and learning curves of Pollux (OSDI '21): six workloads, NVIDIA T4, no power.

A folder for each workload. ``placements.csv``: seconds of a step, and of them for synchronisation,
by placement (a digit for each node: its GPUs) and batch size of one GPU.
``validation-<batch size>.csv``: steps done and validation metric of one training, in rows of equal
progress. Placements over several nodes are left out, and ``scalability.csv`` with them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.schema import CONVERGENCE, PROFILES, WORKLOADS, field, table_schema
from wattkeeper.traces.trace import Trace

SOURCE: Final = (
    "A. Qiao, S. K. Choe, S. J. Subramanya, W. Neiswanger, Q. Ho, H. Zhang, G. R. Ganger, "
    "E. P. Xing. Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning. "
    "OSDI 2021. Traces: https://github.com/petuum/adaptdl, branch osdi21-artifact"
)
GPU_TYPE: Final = "T4"
"""Of the nodes of the artifact: g4dn.12xlarge of AWS, with four of them (``benchmark/main.tf``)."""
MOST_GPUS: Final = 9
"""Of a node: its digit in a placement."""
MOST_EPOCHS: Final = 1_000_000
"""Of a curve, as of a training in a scenario."""
PLACEMENTS_FILE: Final = "placements.csv"
CURVE_FILE: Final = re.compile(r"validation-([1-9][0-9]{0,8})\.csv")
NEEDED: Final = f"{PLACEMENTS_FILE} and validation-<batch size>.csv"


class WorkloadFacts(NamedTuple):
    """What is known of a workload beyond its files.

    Attributes:
        dataset: Its data set.
        network: Its model.
        optimizer: Its optimizer.
        target: Validation metric that ends a run, by table 1 of the paper. None where the recorded
            metric is another one: a run ends with its curve then, as in the published simulator.
        higher_is_better: False for a word error rate.
        samples_per_epoch: Samples of the training set. Of SQuAD 1.1 in windows of 384 tokens with a
            stride of 128, of the training sets of CIFAR-10 and ImageNet, of the PASCAL VOC training
            and validation sets of 2007 and 2012, of MovieLens-1M with four negative samples for
            each rating (He et al., WWW '17); of CMU ARCTIC, of which the artifact takes a part, by
            the steps of the curve of batch size 20.
    """

    dataset: str
    network: str
    optimizer: str
    target: float | None
    higher_is_better: bool
    samples_per_epoch: int


CONSTANTS: Final[Mapping[str, WorkloadFacts]] = {
    "bert": WorkloadFacts("squad", "bert-base", "adamw", 88.0, True, 88_641),
    "cifar10": WorkloadFacts("cifar10", "resnet18", "sgd", 0.94, True, 50_000),
    "deepspeech2": WorkloadFacts("cmu-arctic", "deepspeech2", "sgd", 25.0, False, 7_134),
    "imagenet": WorkloadFacts("imagenet", "resnet50", "sgd", 0.75, True, 1_281_167),
    "ncf": WorkloadFacts("movielens-1m", "neumf", "adam", 0.69, True, 4_970_845),
    "yolov3": WorkloadFacts("pascal-voc", "yolov3", "sgd", None, True, 16_551),
}

PLACEMENTS: Final = table_schema(
    "placements",
    ["placement", "local_bsz"],
    [
        field("placement", pa.int32(), "", "GPUs of each node, a digit each", "> 0"),
        field("local_bsz", pa.int32(), "samples", "batch size of a GPU", "> 0"),
        field("step_time", pa.float64(), "s", "duration of a step", "> 0"),
        field("sync_time", pa.float64(), "s", "of it for synchronisation", ">= 0"),
    ],
)

CURVE: Final = table_schema(
    "validation",
    ["iteration"],
    [
        field("iteration", pa.int32(), "steps", "done so far", "> 0"),
        field("metric", pa.float64(), "", "value of the validation metric", "finite"),
    ],
)

Steps = dict[int, dict[int, tuple[float, float]]]
"""By GPUs of one node and batch size of a GPU, ascending: seconds of a step, and of its
synchronisation."""

Curve = list[tuple[int, float]]
"""Epochs, rounded up, and validation metric."""

Row = dict[str, object]


def read(paths: Sequence[Path]) -> Trace:
    """Read the folder, folders of workloads, or their files.

    Raises:
        TraceError: If a file is missing, unknown or wrong, or nothing can be replayed.
    """
    rows: dict[str, list[Row]] = {"profiles": [], "convergence": [], "workloads": []}
    inputs: dict[str, str] = {}
    unmeasured = []
    for workload, files in _locate(paths).items():
        steps, inputs[f"{workload}/{PLACEMENTS_FILE}"] = _read_steps(files.pop(0))
        curves = {}
        for batch_size, path in files.items():
            samples = CONSTANTS[workload].samples_per_epoch
            curve, digest = _read_curve(path, batch_size, samples)
            curves[batch_size], inputs[f"{workload}/{path.name}"] = curve, digest
        profiles = _profiles(workload, steps, curves)
        rows["profiles"] += profiles
        rows["convergence"] += _convergence(workload, curves)
        rows["workloads"].append(_describe(workload, curves))
        measured = {(row["gpus"], row["batch_size"]) for row in profiles}
        unmeasured += [
            f"{workload} {batch_size} on {gpus}"
            for gpus in steps
            for batch_size in curves
            if batch_size % gpus == 0 and (gpus, batch_size) not in measured
        ]
    if not rows["profiles"]:
        text = f"no batch size of a curve was measured on one node, at {PLACEMENTS_FILE}"
        raise TraceError(text, ", ".join(map(str, paths)))
    schemas = {"profiles": PROFILES, "convergence": CONVERGENCE, "workloads": WORKLOADS}
    return Trace(
        name="pollux",
        kind="profiles",
        tables={name: pa.Table.from_pylist(rows[name], schemas[name]) for name in schemas},
        format=FORMAT.name,
        origin="modelled",
        source=SOURCE,
        licence="Apache-2.0",
        inputs=inputs,
        notes=_notes(rows["workloads"], unmeasured),
    )


def _locate(paths: Sequence[Path]) -> dict[str, dict[int, Path]]:
    """By workload, in order of name: its curves by batch size, and at 0 its placements."""
    absent = [path for path in paths if not path.exists()]
    if absent:
        raise TraceError([Problem("no such file or folder", str(path)) for path in absent])
    found: dict[str, dict[int, Path]] = {}
    problems = []
    for path in (file for given in paths for file in _list_files(given)):
        match = CURVE_FILE.fullmatch(path.name)
        if not match and path.name != PLACEMENTS_FILE:
            problems.append(Problem(f"is not one of {NEEDED}", str(path)))
            continue
        workload = path.parent.resolve().name
        files = found.setdefault(workload, {})
        if files.setdefault(int(match[1]) if match else 0, path) is not path:
            problems.append(Problem(f"a second {path.name} of {workload!r}", str(path)))
    for workload, files in found.items():
        folder = str(next(iter(files.values())).parent)
        if workload not in CONSTANTS:
            known = ", ".join(CONSTANTS)
            text = f"workload {workload!r}, the name of the folder, must be one of {known}"
            problems.append(Problem(text, folder))
        elif 0 not in files or len(files) == 1:
            there = ", ".join(sorted(file.name for file in files.values()))
            problems.append(Problem(f"has {there}; needs {NEEDED}", folder))
    if not found and not problems:
        text = f"no folder of a workload with {NEEDED}"
        problems.append(Problem(text, ", ".join(map(str, paths))))
    if problems:
        raise TraceError(problems[:MOST_FAULTS])
    return {workload: dict(sorted(found[workload].items())) for workload in sorted(found)}


def _list_files(path: Path) -> list[Path]:
    """The files of a folder and of those in it; a file itself."""
    if not path.is_dir():
        return [path]
    names = (PLACEMENTS_FILE, "validation-*.csv")
    return sorted(file for name in names for file in (*path.glob(name), *path.glob(f"*/{name}")))


def _read_steps(path: Path) -> tuple[Steps, str]:
    """The step times on one node, and the digest of the file."""
    file = read_csv(path, PLACEMENTS)
    steps: Steps = {}
    problems = []
    columns = (file.table[name].to_pylist() for name in PLACEMENTS.names)
    for row, (placement, local, step_s, sync_s) in enumerate(zip(*columns, strict=True), 1):
        if sync_s >= step_s:
            text = f"sync_time is {sync_s!r}, must be less than step_time ({step_s!r})"
            problems.append(Problem(text, f"{path}, row {row}"))
        elif placement <= MOST_GPUS:
            steps.setdefault(placement, {})[local] = step_s, sync_s
    if problems:
        raise TraceError(problems[:MOST_FAULTS])
    return {gpus: dict(sorted(steps[gpus].items())) for gpus in sorted(steps)}, file.sha256


def _read_curve(path: Path, batch_size: int, samples: int) -> tuple[Curve, str]:
    """The curve of a batch size, and the digest of the file.

    A row counts the epochs until the one in which its last step begins.
    """
    file = read_csv(path, CURVE)
    iterations, metrics = (file.table[name].to_pylist() for name in CURVE.names)
    for row, (before, now) in enumerate(pairwise(iterations), 2):
        if now < before:
            text = f"iteration is {now}, must be more than in the row before ({before})"
            raise TraceError(text, f"{path}, row {row}")
    epochs = [(iteration - 1) * batch_size // samples + 1 for iteration in iterations]
    if epochs[-1] > MOST_EPOCHS:
        text = f"iteration is {iterations[-1]}, which is in epoch {epochs[-1]} of {samples} samples"
        raise TraceError(f"{text}; allowed are up to {MOST_EPOCHS}", f"{path}, row {len(epochs)}")
    return list(zip(epochs, metrics, strict=True)), file.sha256


def _profiles(workload: str, steps: Steps, curves: Mapping[int, Curve]) -> list[Row]:
    samples = CONSTANTS[workload].samples_per_epoch
    rows: list[Row] = []
    for gpus, measured in steps.items():
        for batch_size in curves:
            step_s = None if batch_size % gpus else _step_s(measured, batch_size // gpus)
            if step_s is not None:
                what = {"workload": workload, "gpu_type": GPU_TYPE, "gpus": gpus}
                time_s = samples / batch_size * step_s
                rows.append(what | {"batch_size": batch_size, "time_per_epoch_s": time_s})
    return rows


def _step_s(measured: Mapping[int, tuple[float, float]], local: int) -> float | None:
    """Seconds of a step with so many samples on each GPU, as in Pollux; None if not measured.

    More samples than were measured come in equal parts, which accumulate gradients: only the last
    part synchronises. Times between two measured sizes are interpolated linearly.
    """
    sizes = list(measured)
    parts = math.ceil(local / sizes[-1])
    size = math.ceil(local / parts)
    if size < sizes[0]:
        return None
    step_s, sync_s = (
        float(np.interp(size, sizes, column)) for column in zip(*measured.values(), strict=True)
    )
    return parts * step_s - (parts - 1) * sync_s


def _convergence(workload: str, curves: Mapping[int, Curve]) -> list[Row]:
    target = _target(workload, curves)
    what = {"workload": workload, "run": 1, "target": target}
    return [
        what | {"batch_size": batch_size, "epochs": _epochs(workload, curve, target)}
        for batch_size, curve in curves.items()
    ]


def _target(workload: str, curves: Mapping[int, Curve]) -> float:
    """The metric that ends a run; the rows of the shortest curve where it is not the paper's."""
    target = CONSTANTS[workload].target
    return float(min(map(len, curves.values()))) if target is None else target


def _epochs(workload: str, curve: Curve, target: float) -> int | None:
    """Epochs until the first row at the target, None if there is none."""
    constants = CONSTANTS[workload]
    sign = 1 if constants.higher_is_better else -1
    for row, (epochs, metric) in enumerate(curve, 1):
        value = row if constants.target is None else metric
        if sign * value >= sign * target:
            return epochs
    return None


def _describe(workload: str, curves: Mapping[int, Curve]) -> Row:
    return {
        "workload": workload,
        **CONSTANTS[workload]._asdict(),
        "target": _target(workload, curves),
        "max_epochs": max(curve[-1][0] for curve in curves.values()),
        "default_batch_size": min(curves),
    }


def _notes(workloads: Sequence[Row], unmeasured: Sequence[str]) -> tuple[str, ...]:
    notes = [
        "No power was recorded: replay it with objective.eta 0.",
        "Targets are those of the paper, table 1; they and the sizes of the training sets are not "
        "part of the files.",
        "Epochs are those of the one training recorded at a batch size, rounded up.",
        "Jobs hold GPUs of one node that share a batch size evenly.",
        "Step times between two measured batch sizes of a GPU are interpolated, and those of more "
        "samples than were measured are sums of parts that accumulate gradients.",
    ]
    notes += [
        f"{row['workload']}: its metric of the paper was not recorded. A run ends with its curve, "
        f"and its target, {row['target']:g}, counts the rows of equal progress."
        for row in workloads
        if CONSTANTS[str(row["workload"])].target is None
    ]
    if unmeasured:
        text = "Left out, since the share of a GPU is smaller than any measured one"
        notes.append(f"{text}: {', '.join(unmeasured)} GPUs.")
    return tuple(notes)


FORMAT: Final = Format(
    name="pollux",
    summary="step times and learning curves of Pollux (OSDI '21): placements.csv, "
    "validation-<batch size>.csv",
    takes=f"the folder with one of each workload, or files of it: {NEEDED}",
    read=read,
)
