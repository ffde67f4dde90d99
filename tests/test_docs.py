"""The pages that list what the code defines list all of it, as it is defined."""

from __future__ import annotations

from pathlib import Path

from wattkeeper.sim.metrics import METRICS
from wattkeeper.sim.results import TABLES, VALUES

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_every_column_and_metric_of_the_results_is_listed() -> None:
    page = (DOCS / "results.md").read_text(encoding="utf-8").splitlines()
    expected = []
    for schema in (*TABLES.values(), VALUES):
        for column in schema:
            unit, doc = (column.metadata[key].decode() for key in (b"unit", b"doc"))
            expected.append(f"| `{column.name}` | `{column.type}` | {unit} | {doc} |")
    expected += [f"| `{name}` | {metric.unit} | {metric.doc} |" for name, metric in METRICS.items()]
    assert [line for line in page if line.startswith("| `")] == expected
