"""Report on a trace of kind ``networks``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.json_types import Json
from wattkeeper.traces.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console


def report(trace: Trace) -> Json:
    """What a table of networks holds, and what it can and cannot answer.

    Returns:
        ``space``: the choices for each name; ``tasks``: by task the number of networks, of
        recordings from scratch and from parents, and of different pairs of a network and its
        parent; the mean and the largest accuracy and the mean of epochs and seconds from scratch;
        ``seeds``: the largest number of recordings from scratch of a network; ``curves``: whether
        each recording has one; ``cannot_tell``.
    """
    networks, recordings = trace.tables["networks"], trace.tables["recordings"]
    tasks = pc.unique(networks["task"]).to_pylist()
    has_curves = recordings["curve"].null_count == 0
    return {
        "space": dict(trace.parameters["space"]),
        "tasks": {
            task: _of_task(
                networks.filter(pc.equal(networks["task"], task)).num_rows,
                recordings.filter(pc.equal(recordings["task"], task)),
            )
            for task in tasks
        },
        "gpu_type": trace.parameters.get("gpu_type"),
        "curves": has_curves,
        "cannot_tell": list(_list_unknown(recordings, has_curves)),
    }


def _of_task(networks: int, recordings: pa.Table) -> Json:
    is_first = recordings["parent"].is_null()
    first, warm = recordings.filter(is_first), recordings.filter(pc.invert(is_first))
    often = pc.max(pc.value_counts(first["network"]).field("counts")).as_py()
    pairs = warm.group_by(["network", "parent"], use_threads=False).aggregate([]).num_rows
    return {
        "networks": networks,
        "from_scratch": first.num_rows,
        "from_parents": warm.num_rows,
        "pairs": pairs,
        "pairs_share": pairs / networks**2,
        "seeds": often,
        "mean_accuracy": _mean(first["accuracy"]),
        "best_accuracy": pc.max(first["accuracy"]).as_py(),
        "mean_epochs": _mean(first["epochs"]),
        "mean_time_s": _mean(first["time_s"]),
    }


def _mean(column: pa.ChunkedArray) -> float:
    return math.fsum(column.to_pylist()) / len(column)


def _list_unknown(recordings: pa.Table, has_curves: bool) -> Iterator[str]:
    if recordings["parent"].null_count == len(recordings):
        yield "What a parent is worth: all trainings are from scratch, others are modelled."
    else:
        yield "What a parent is worth of which no recording is there: such trainings are modelled."
        yield "What a parent is worth that itself began with a parent: all began from scratch."
    if not has_curves:
        yield "What earlier or later stopping changes: only the ends of trainings were recorded."
    if recordings["test_accuracy"].null_count:
        yield "What a network reaches on a test set: accuracies are of the validation set."
    yield "Energy: no power was recorded."


def render(report: Json, console: Console) -> None:
    """Print the report."""
    for name, choices in report["space"].items():
        console.print(f"{name}: {', '.join(choices)}", soft_wrap=True)
    for task, about in report["tasks"].items():
        time = f"mean {about['mean_time_s']:.4g} s"
        on = f" on {report['gpu_type']}" if report["gpu_type"] else ""
        lines = (
            f"{task}: {about['networks']:,} networks, all of the space",
            f"{about['from_scratch']:,} trainings from scratch, up to {about['seeds']} of a "
            f"network: mean {about['mean_epochs']:.4g} epochs, {time}{on}, validation accuracy "
            f"{100 * about['mean_accuracy']:.2f} %, at most {100 * about['best_accuracy']:.2f} %",
            f"{about['from_parents']:,} trainings from parents: {about['pairs']:,} pairs of a "
            f"network and its parent, {100 * about['pairs_share']:.2g} % of all",
        )
        for line in lines:
            console.print(line, soft_wrap=True)
    curves = "with the curve of each training" if report["curves"] else "without curves"
    console.print(curves, soft_wrap=True)
    console.print("It cannot tell:", soft_wrap=True)
    for text in report["cannot_tell"]:
        console.print(f"- {text}", soft_wrap=True)
