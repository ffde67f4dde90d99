"""Packs what `benchmarks.warm_starts.record_table` recorded into the trace that is shipped.

``python -m benchmarks.warm_starts.pack_table FOLDER`` writes `traces/library/shipped/digits-space`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.warm_starts.families import SPACE, list_space
from benchmarks.warm_starts.pack import describe, read_folder
from benchmarks.warm_starts.record_table import FAMILY, SEED
from wattkeeper.sim.search.architectures import count_parameters
from wattkeeper.traces.library.folder import write
from wattkeeper.traces.library.store import SHIPPED
from wattkeeper.traces.schema import NETWORKS, RECORDINGS
from wattkeeper.traces.trace import Trace

NAME: Final = "digits-space"
TASK: Final = "digits"


def pack(folder: Path) -> Trace:
    """The trace of all networks that were recorded."""
    lines = read_folder(folder)[FAMILY, SEED]
    graphs = json.loads((folder / "graphs.json").read_text(encoding="utf-8"))
    names = SPACE.space.names
    networks = [
        {
            "task": TASK,
            "network": network.name,
            "choices": ",".join(choices),
            "parameters": float(count_parameters(network.architecture)),
            "graph": json.dumps(graphs[network.name], separators=(",", ":")),
        }
        for network, choices in list_space()
    ]
    about = describe()
    rule = about.pop("rule")
    return Trace(
        name=NAME,
        kind="networks",
        format="record_table",
        origin="recorded",
        tables={
            "networks": _table(networks, NETWORKS),
            "recordings": _table(list(map(_recording, lines)), RECORDINGS),
        },
        source="recorded for wattkeeper by benchmarks/warm_starts/record_table.py",
        licence="as wattkeeper",
        notes=(
            f"Rule of all trainings: {rule}. Time is CPU time.",
            "Each network was trained from scratch; from its own weights; from the neighbour, a "
            "network with one other choice, of which expected_saving was the largest; and from "
            "another, drawn neighbour. All parents were trained from scratch.",
        ),
        parameters={
            "space": [[n, [*c]] for n, c in zip(names, SPACE.space.choices, strict=True)],
            "gpu_type": "CPU",
            "validation_samples": lines[0]["validation"],
            **about,
        },
    )


def _recording(line: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": TASK,
        "network": line["network"],
        "parent": line["parent"],
        "seed": SEED,
        "epochs": line["epochs"],
        "time_s": line["cpu_s"],
        "accuracy": max(line["curve"]) / line["validation"],
        "test_accuracy": line["test_accuracy"],
        "curve": " ".join(map(str, line["curve"])),
    }


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    return pa.Table.from_pylist(full, schema=schema)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(pack(Path(sys.argv[1])), SHIPPED / NAME, overwrite=True)
