"""Plans of pipelines by number of nodes, and files of the rates that follow from them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattkeeper.policies.elastic.instantiation import instantiate
from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.notebook.flat_rows import escape_formula
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.node_rates import RATES, read_node_rates

Rates = Mapping[int, float]
"""Samples a second by number of nodes; 0: it cannot train on so many."""


def plan_pipelines(
    templates: Sequence[PipelineTemplate], nodes: int, microbatches: int
) -> dict[str, Any]:
    """The balanced pipelines on so many nodes, as JSON values.

    Args:
        templates: One for each size.
        nodes: Of the job.
        microbatches: Of a step.
    """
    found = instantiate(templates, nodes, microbatches)
    plan: dict[str, Any] = {"nodes": nodes, "microbatches": microbatches, "pipelines": None}
    if found is not None:
        groups = {str(each.nodes): [each.pipelines, each.microbatches] for each in found.groups}
        plan |= {"pipelines": groups, "balanced_s": found.balanced_s}
    return plan


def add_rates(path: Path, system: str, model: str, rates: Rates) -> None:
    """Write rates to a file, beside those that it has.

    Raises:
        InputError: If it has rates of this system and model, or names no systems, or the model is a
            formula to spreadsheets.
    """
    if escape_formula(model) != model:
        raise InputError(f"model {model!r}: a spreadsheet would take it for a formula")
    rows: list[dict[str, Any]] = []
    if path.exists():
        known = read_node_rates(path)
        if (system, model) in known.rates:
            raise InputError(f"has rates of {model!r} by {system} already", path)
        rows = known.table.to_pylist()
        if rows[0]["system"] is None:
            raise InputError("names no systems; rates of another one cannot stand beside", path)
    rows += [
        {"system": system, "model": model, "num_nodes": nodes, "samples_per_s": rate}
        for nodes, rate in rates.items()
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, RATES.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replace_file(path) as fresh:
        fresh.write_text(text.getvalue(), encoding="utf-8", newline="\n")


def describe_templates(templates: Sequence[PipelineTemplate]) -> Iterator[dict[str, Any]]:
    """The templates as JSON values; stages as `[first:end]xGPUs`."""
    for template in templates:
        stages = (f"[{each.first}:{each.end}]x{each.gpus}" for each in template.stages)
        yield {
            "num_nodes": template.nodes,
            "num_stages": template.num_stages,
            "iteration_s": template.iteration_s,
            "gpus_per_node": template.gpus_per_node,
            "stages": " ".join(stages),
        }
