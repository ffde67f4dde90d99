"""The files that an elastic training leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from wattkeeper.live.elastic.records import ElasticResults
from wattkeeper.sim.cluster_results.schemas import SHAPES
from wattkeeper.sim.results.parquet import KEYS
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.schema import field, is_optional

SHAPES_FILE: Final = "shapes.parquet"
RESULTS_FILE: Final = "elastic.json"

LIVE_SHAPES: Final = pa.schema(
    [
        *[
            column
            for column in SHAPES
            if column.name not in {key.name for key in KEYS} and not is_optional(column)
        ],
        field(
            "predicted_pause_s",
            pa.float64(),
            "s",
            "the pause that the policy expected; null: nodes were lost or came in it",
            null=True,
        ),
    ]
)
"""The columns that all simulated shapes have, without those that tell runs apart, and the predicted
pause."""


def write_results(folder: Path, results: ElasticResults, values: Mapping[str, Any]) -> None:
    """Write the results of a training, each file whole or not at all.

    Args:
        folder: For the files.
        results: Its shapes, losses of nodes and decisions.
        values: What else stands in `RESULTS_FILE`.

    Raises:
        EnvironmentLacks: If the file system refuses.
    """
    rows = [asdict(shape) for shape in results.shapes]
    for row in rows:
        for name in ("copied_bytes", "predicted_pause_s"):
            row[name] = None if math.isnan(row[name]) else row[name]
    table = pa.Table.from_pylist(rows, schema=LIVE_SHAPES)
    with replace_file(folder / SHAPES_FILE) as new:
        pq.write_table(table, new)
    said = {
        **values,
        "steps": len(results.losses),
        "lost_steps": results.lost_steps,
        "lost": [each._asdict() for each in results.lost],
        "decisions": [each._asdict() for each in results.decisions],
        "losses": [None if math.isnan(loss) else loss for loss in results.losses],
    }
    with replace_file(folder / RESULTS_FILE) as new:
        new.write_text(json.dumps(said) + "\n", encoding="utf-8")
