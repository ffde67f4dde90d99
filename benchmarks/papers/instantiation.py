"""The pipelines that Oobleck's engine runs on so many nodes, beside the balanced ones.

Run it as `python -m benchmarks.papers.instantiation FILE --nodes N --microbatches N`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa

from benchmarks.papers.commands import PaperCommand
from wattkeeper.policies.elastic.instantiation import Instantiation, instantiate, instantiate_counts
from wattkeeper.policies.elastic.stages import TemplateStage
from wattkeeper.policies.elastic.templates import PipelineTemplate
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, number_type
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.schema import field, table_schema

_WHOLE = number_type("a whole number from 1 to 10000", lambda n: 1 <= n <= 1e4, whole=True)

TIMES: Final = table_schema(
    "times of templates",
    [],
    [
        field("profile", pa.string(), "", "which model was measured", "not empty"),
        field("num_nodes", pa.int32(), "", "number of nodes", "> 0"),
        field("num_stages", pa.int32(), "", "number of stages", "> 0"),
        field("iteration_time", pa.float64(), "s", "with about four micro-batches a stage", "> 0"),
    ],
)


def read_times(path: Path, profile: str) -> tuple[PipelineTemplate, ...]:
    """Templates of a profile, by number of nodes; only their size and time are known.

    Raises:
        TraceError: If the file is broken.
        InputError: If it has no such profile.
    """
    rows = read_csv(path, TIMES).table.to_pylist()
    found = [row for row in rows if row["profile"] == profile]
    if not found:
        there = ", ".join(sorted({row["profile"] for row in rows}))
        raise InputError(f"has no profile {profile!r}; there is {there}", path)
    templates = (
        PipelineTemplate(
            row["num_nodes"],
            1,
            (TemplateStage(0, 1, 1, 0.0),) * row["num_stages"],
            row["iteration_time"],
        )
        for row in found
    )
    return tuple(sorted(templates, key=lambda template: template.nodes))


def pipeline_counts(sizes: Sequence[int], nodes: int) -> Iterator[tuple[int, ...]]:
    """All numbers of pipelines of each size that use exactly so many nodes."""
    if not sizes:
        if nodes == 0:
            yield ()
        return
    for count in range(nodes // sizes[0] + 1):
        for rest in pipeline_counts(sizes[1:], nodes - count * sizes[0]):
            yield (count, *rest)


def iteration_s(templates: Sequence[PipelineTemplate], found: Instantiation) -> float:
    """What the engine compares: the largest iteration time of a template times the micro-batches.

    That forgets the number of stages, to which the time of a template is proportional.
    """
    times_s = {template.nodes: template.iteration_s for template in templates}
    return max(times_s[group.nodes] * group.microbatches for group in found.groups)


def describe(
    templates: Sequence[PipelineTemplate], nodes: int, microbatches: int
) -> Mapping[str, Any]:
    """The pipelines of the engine and the balanced ones, as JSON values.

    `options` is the number of sets of pipelines that could share the micro-batches.
    """
    sizes = [template.nodes for template in templates]
    options = [
        option
        for each in pipeline_counts(sizes, nodes)
        if (option := instantiate_counts(templates, each, microbatches)) is not None
    ]
    by_engine = min(
        options,
        key=lambda option: (iteration_s(templates, option), option.variance_s2),
        default=None,
    )
    answer: dict[str, Any] = {"nodes": nodes, "microbatches": microbatches, "options": len(options)}
    for rule, found in (
        ("best_by_engine", by_engine),
        ("best_balanced", instantiate(templates, nodes, microbatches)),
    ):
        answer[rule] = None
        if found is not None:
            groups = {str(each.nodes): [each.pipelines, each.microbatches] for each in found.groups}
            answer[rule] = {"pipelines": groups, "iteration_s": iteration_s(templates, found)}
    return answer


@click.command("python -m benchmarks.papers.instantiation", cls=PaperCommand)
@click.argument("file", type=FILE)
@click.option("--profile", required=True, help="Of FILE.")
@click.option("--nodes", type=_WHOLE, required=True, help="Of the job.")
@click.option("--microbatches", type=_WHOLE, required=True, help="Of a step, over all pipelines.")
def main(file: Path, profile: str, nodes: int, microbatches: int) -> None:
    """Print as JSON which pipelines Oobleck's engine runs on so many nodes (SOSP '23).

    FILE has times of templates: profile, num_nodes, num_stages, iteration_time.
    """
    templates = read_times(file, profile)
    terminal.write(json.dumps(describe(templates, nodes, microbatches), indent=2))


if __name__ == "__main__":
    main()
