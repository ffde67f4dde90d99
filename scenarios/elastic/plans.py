"""Plans of pipelines by number of nodes, and files of the rates that follow from them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from wattkeeper.policies.elastic.instantiation import (
    Instantiation,
    InstantiationRule,
    instantiate,
    instantiate_counts,
    pipeline_counts,
)
from wattkeeper.policies.elastic.templates import (
    PipelineTemplate,
    TimedTemplate,
    most_nodes,
    plan_templates,
)
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.notebook.flat_rows import escape_formula
from wattkeeper.traces.files.atomic import replace_file
from wattkeeper.traces.layer_costs import LAYERS, read_layers, read_template_times
from wattkeeper.traces.node_rates import RATES, read_node_rates
from wattkeeper.traces.readers.textfile import first_line

RULES: Final[tuple[InstantiationRule, ...]] = get_args(InstantiationRule)

Rates = Mapping[int, float]
"""Samples a second by number of nodes; 0: it cannot train on so many."""


def read_templates(
    path: Path,
    profile: str,
    gpus_per_node: int | None,
    choose_sizes: Callable[[int | None], Sequence[int]],
) -> tuple[TimedTemplate, ...]:
    """The templates of these sizes: planned from costs of layers, or as a file of times has them.

    Args:
        path: Of costs of layers, or of times of templates.
        profile: Of the file; empty: its only one.
        gpus_per_node: GPUs of each node, 1 if None; for costs of layers alone.
        choose_sizes: Gives the numbers of nodes by the most that the layers split over (None: not
            known); empty with a file of times: all.

    Raises:
        InputError: If the file lacks what is asked for.
    """
    if "fb_s" in first_line(path):
        layers, gpus = read_layers(path, profile).layers, gpus_per_node or 1
        sizes = choose_sizes(most_nodes(len(layers), gpus))
        if not sizes:
            raise InputError("costs of layers need sizes of templates (--sizes, or --least)", path)
        return plan_templates(layers, gpus, sizes)
    if gpus_per_node is not None:
        raise InputError(
            f"--gpus-per-node needs costs of layers ({', '.join(LAYERS.names)}); the file has none",
            path,
        )
    times = read_template_times(path, profile)
    sizes = choose_sizes(None)
    absent = sorted(set(sizes) - {each.nodes for each in times})
    if absent:
        raise InputError(f"has no template for {absent[0]} nodes", path)
    return tuple(each for each in times if not sizes or each.nodes in sizes)


def plan_pipelines(
    templates: Sequence[TimedTemplate], nodes: int, microbatches: int, *, count_options: bool
) -> dict[str, Any]:
    """The best pipelines on so many nodes by each rule, as JSON values.

    Args:
        templates: One for each size.
        nodes: Of the job.
        microbatches: Of a step.
        count_options: Whether to count the sets of pipelines that could share the micro-batches.
    """
    plan: dict[str, Any] = {"nodes": nodes, "microbatches": microbatches}
    for rule in RULES:
        found = instantiate(templates, nodes, microbatches, rule)
        plan[rule] = None if found is None else _described(found)
    if count_options:
        by_size = sorted(templates, key=lambda template: template.nodes)
        sizes = [template.nodes for template in by_size]
        plan["options"] = sum(
            instantiate_counts(by_size, counts, microbatches, RULES[0]) is not None
            for counts in pipeline_counts(sizes, nodes)
        )
    return plan


def _described(found: Instantiation) -> dict[str, Any]:
    pipelines = {str(group.nodes): [group.pipelines, group.microbatches] for group in found.groups}
    return {
        "pipelines": pipelines,
        "iteration_s": found.iteration_s,
        "balanced_s": found.balanced_s,
    }


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


def describe_templates(templates: Sequence[TimedTemplate]) -> Iterator[dict[str, Any]]:
    """The templates as JSON values; stages as `[first:end]xGPUs`, where they are known."""
    for template in templates:
        about: dict[str, Any] = {
            "num_nodes": template.nodes,
            "num_stages": template.num_stages,
            "iteration_s": template.iteration_s,
        }
        if isinstance(template, PipelineTemplate):
            stages = (f"[{each.first}:{each.end}]x{each.gpus}" for each in template.stages)
            about |= {"gpus_per_node": template.gpus_per_node, "stages": " ".join(stages)}
        yield about
