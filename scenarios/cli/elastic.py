"""The group `wattkeeper elastic`: pipelines by number of nodes, and rates that follow from them.

Only what a command needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from wattkeeper.policies.elastic.microbatches import MOST_MICROBATCHES
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import FILE, GPUS, json_option, number_type

MOST_NODES = 10_000


def parse_range(text: str) -> range:
    """The whole numbers from A to B of `A-B`, or the only one of `A`."""
    matched = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text)
    if matched:
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if 1 <= first <= last <= MOST_NODES:
            return range(first, last + 1)
    raise click.BadParameter(
        f"found {text!r}; must be a number of nodes from 1 to {MOST_NODES}, or two as 3-9"
    )


_WHOLE = number_type("a whole number from 1 to 1e9", lambda n: 1 <= n <= 1e9, whole=True)
_MICROBATCHES = number_type(
    f"a whole number from 1 to {MOST_MICROBATCHES}",
    lambda n: 1 <= n <= MOST_MICROBATCHES,
    whole=True,
)
_LOSSES = number_type("a whole number from 0 to 10000", lambda n: 0 <= n <= 1e4, whole=True)
_SIZE = number_type("a number of GB from 1e-6 to 1e9", lambda n: 1e-6 <= n <= 1e9)

_profile = click.option("--profile", default="", help="Of FILE, if it has several.")
_model = click.option("--model", metavar="NAME", help="With --rates: name of the model there.")
_rates = click.option(
    "--rates", "out", type=FILE, help="Add the rates by number of nodes to a file for scenarios."
)


def _check_rates(out: Path | None, **needed: object) -> None:
    """Refuse a file of rates without what it needs, and the other way round."""
    for name, value in needed.items():
        if (out is None) != (value is None):
            raise click.UsageError(f"--rates and --{name} need each other")
        if value == "":
            raise click.UsageError(f"--{name} is empty")


@click.group("elastic")
def elastic() -> None:
    """Plan pipelines of elastic jobs by number of nodes.

    Simulate elastic jobs by `wattkeeper run` (workload.kind: elastic).
    """


@elastic.command()
@click.argument("file", type=FILE)
@_profile
@click.option("--gpus-per-node", type=GPUS, default=1, help="Of each node [1].")
@click.option(
    "--sizes", type=parse_range, metavar="RANGE", help="Numbers of nodes of the templates, as 3-9."
)
@click.option("--least", type=_WHOLE, help="Or: fewest nodes of a template, which hold the model.")
@click.option("--losses", type=_LOSSES, help="With --least: so many losses leave a pipeline [1].")
@click.option("--nodes", type=parse_range, metavar="RANGE", help="Of the job, as 13 or 6-30.")
@click.option("--microbatches", type=_MICROBATCHES, help="Of a step, over all pipelines.")
@_rates
@_model
@click.option("--samples", type=_WHOLE, help="With --rates: samples of a micro-batch.")
@json_option
def plan(
    file: Path,
    profile: str,
    gpus_per_node: int,
    sizes: range | None,
    least: int | None,
    losses: int | None,
    nodes: range | None,
    microbatches: int | None,
    out: Path | None,
    model: str | None,
    samples: int | None,
    as_json: bool,
) -> None:
    """Plan Oobleck's pipeline templates, and which of them run on so many nodes.

    FILE has costs of layers (layer, fb_s, extra_2gpus_s, ...). Memory is not looked at: --least or
    --sizes says what holds the model.
    """
    from wattkeeper.policies.elastic.pipeline_plan import PipelinePlan
    from wattkeeper.policies.elastic.templates import most_nodes, plan_templates, template_sizes
    from wattkeeper.scenarios.elastic import plans
    from wattkeeper.traces.layer_costs import read_layers

    _check_rates(out, model=model, samples=samples)
    if (nodes is None) != (microbatches is None):
        raise click.UsageError("--nodes and --microbatches need each other")
    if nodes is None and out is not None:
        raise click.UsageError("--rates needs --nodes")
    if (least is None) == (sizes is None):
        raise click.UsageError("give either --sizes or --least")
    if least is not None and nodes is None:
        raise click.UsageError("--least needs --nodes")
    if least is None and losses is not None:
        raise click.UsageError("--losses needs --least")
    layers = read_layers(file, profile).layers
    if sizes is None:
        assert least is not None
        assert nodes is not None
        most = most_nodes(len(layers), gpus_per_node)
        sizes = template_sizes(least, nodes[-1], 1 if losses is None else losses, most)
    templates = plan_templates(layers, gpus_per_node, sizes)
    answer: dict[str, Any] = {"templates": list(plans.describe_templates(templates))}
    if nodes is not None and microbatches is not None:
        answer["plans"] = [
            plans.plan_pipelines(templates, number, microbatches) for number in nodes
        ]
        if out is not None and model is not None and samples is not None:
            rates = PipelinePlan(templates, microbatches).rates(nodes, microbatches * samples)
            plans.add_rates(out, "oobleck", model, rates)
    if as_json:
        terminal.write(json.dumps(answer, indent=2))
        return
    from wattkeeper.scenarios.cli.tables.elastic import print_plans

    print_plans(terminal.console(), answer["templates"], answer.get("plans", ()))


@elastic.command()
@click.argument("pipelines")
@click.option("--lost", type=_LOSSES, multiple=True, required=True, help="A node; may be repeated.")
@click.option("--least", type=_WHOLE, required=True, help="Fewest nodes that hold the model.")
def reconfigure(pipelines: str, lost: tuple[int, ...], least: int) -> None:
    """Print the pipelines after a loss, as Oobleck makes them.

    PIPELINES are the numbers of their nodes as JSON, such as '[[0, 1], [2, 3, 4]]'.
    """
    from wattkeeper.policies.elastic.reconfiguration import reconfigure as form_anew

    try:
        stated = json.loads(pipelines)
        before = [list(pipeline) for pipeline in stated]
        if before != stated or any(type(node) is not int for each in before for node in each):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise InputError(
            f"pipelines: found {pipelines!r}; must be lists of whole numbers as JSON, such as "
            "'[[0, 1], [2, 3, 4]]'"
        ) from None
    terminal.write(json.dumps(form_anew(before, lost, least)))


@elastic.command()
@click.argument("file", type=FILE)
@_profile
@click.option("--gpus-per-node", type=GPUS, default=1, help="Of each node [1].")
@click.option(
    "--nodes", type=parse_range, metavar="RANGE", required=True, help="Of the job, as 13 or 6-30."
)
@click.option("--batch", type=_WHOLE, required=True, help="Samples of a step.")
@click.option("--memory-gb", type=_SIZE, required=True, help="Of a GPU.")
@click.option(
    "--bandwidth-gb-s",
    type=_SIZE,
    required=True,
    help="Of a GPU in an all-reduce between replicas, GB/s.",
)
@_rates
@_model
@json_option
def morph(
    file: Path,
    profile: str,
    gpus_per_node: int,
    nodes: range,
    batch: int,
    memory_gb: float,
    bandwidth_gb_s: float,
    out: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Choose depth and replicas of a pipeline by number of nodes, as Varuna does.

    FILE has costs of the sections between cut-points, a row for each size of micro-batch: section,
    microbatch, forward_s, backward_s, state_bytes, sample_bytes, gradient_bytes.
    """
    from wattkeeper.policies.elastic.morphing import MorphingModel
    from wattkeeper.policies.elastic.morphing import morph as choose_shape
    from wattkeeper.scenarios.elastic import plans
    from wattkeeper.traces.layer_costs import read_sections

    _check_rates(out, model=model)
    sections, sizes = read_sections(file, profile)
    known = MorphingModel(sections, sizes, int(memory_gb * 1e9), bandwidth_gb_s * 1e9)
    shapes = {number: choose_shape(known, number * gpus_per_node, batch) for number in nodes}
    rows: list[dict[str, Any]] = [
        {"nodes": number, "samples_per_s": 0.0} | ({} if shape is None else shape._asdict())
        for number, shape in shapes.items()
    ]
    if out is not None and model is not None:
        rates = {row["nodes"]: row["samples_per_s"] for row in rows}
        plans.add_rates(out, "varuna", model, rates)
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
        return
    from wattkeeper.scenarios.cli.tables.elastic import print_shapes

    print_shapes(terminal.console(), rows)
