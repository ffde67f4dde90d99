"""Sweeps of power limits that a document names as files: their rows take the place of the names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wattkeeper.policies.errors import Problem, ScenarioError, TraceError
from wattkeeper.scenarios.spec.yaml_document import ValuePath, YamlDocument

MODELS = ("model", "gpu_model")
"""Keys under which facts of a GPU stand."""


def read_sweep_files(document: YamlDocument) -> None:
    """Put the rows of each file that is named as the sweep of a GPU in its place.

    Raises:
        ScenarioError: If a file is no sweep; it names the file and the row.
    """
    problems = []
    for path, facts in _facts_in(document.data, ()):
        name = facts.get("sweep")
        if not isinstance(name, str):
            continue
        from wattkeeper.traces.gpus.sweep import read_sweep

        place = (*path, "sweep")
        try:
            points = read_sweep(document.folder_of(place) / name)
        except (TraceError, ValueError) as error:
            faults = (
                error.problems if isinstance(error, TraceError) else [Problem(str(error), name)]
            )
            where = document.where(place)
            problems += [Problem(f"sweep: {fault}", where) for fault in faults]
            continue
        facts["sweep"] = [point._asdict() for point in points]
    if problems:
        raise ScenarioError(problems)


def _facts_in(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """All mappings under the keys `MODELS`, with their paths."""
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        here = (*path, key)
        if key in MODELS and isinstance(inner, dict):
            yield here, inner
        else:
            yield from _facts_in(inner, here)
