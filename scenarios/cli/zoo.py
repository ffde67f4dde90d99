"""The commands `wattkeeper zoo ...`.

Only what a command needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import PATH, json_option

if TYPE_CHECKING:
    from wattkeeper.live.zoo.parents import ParentMatch
    from wattkeeper.live.zoo.rows import ZooModel
    from wattkeeper.live.zoo.zoo import Zoo

NOT_KEPT = 1
Command = Callable[..., Any]

_zoo = click.option("--zoo", "folder", type=PATH, required=True, help="Folder of the zoo.")
_policy = click.option(
    "--policy", default="relative", help="Policy that chooses the parent [relative]."
)
_task = click.option("--task", help="Task of the child.")
_dataset = click.option("--dataset", default="", help="Data set of the child.")
_origin = click.option(
    "--mutated-from", metavar="NAME", help="Stored model that the child is a mutation of."
)
_input = click.option(
    "--input",
    "shape",
    metavar="1,3,32,32",
    help="Shape of a module's input; by default derived from its first layer.",
)


@click.group("zoo")
def zoo() -> None:
    """Store trained models, and start new ones from the weights of the most similar one.

    Where a command takes MODULE:CALLABLE, as my_models:resnet18, it imports your code (from the
    working directory first) and calls it without arguments, to get the torch module.
    """


def _open(folder: Path) -> Zoo:
    """Open a zoo that exists."""
    from wattkeeper.live.zoo.index import NAME
    from wattkeeper.live.zoo.zoo import Zoo

    if not (folder / NAME).exists():
        raise InputError(f"no zoo in {folder}; `wattkeeper zoo add` makes one")
    return Zoo(folder)


@zoo.command()
@_zoo
@click.option("--graph", type=PATH, help="Graph of the model, a JSON or ONNX file.")
@click.option(
    "--module", metavar="MODULE:CALLABLE", help="Or code of the model, which warm-start needs."
)
@_input
@click.option(
    "--weights", type=PATH, required=True, help="Weights of the model, a safetensors file."
)
@click.option("--task", required=True, help="Task of the model.")
@click.option("--dataset", required=True, help="Data set of the model.")
@click.option(
    "--accuracy", type=float, required=True, help="Accuracy of the model; the larger, the better."
)
@click.option("--name", help="Name of the model [that of the graph].")
@click.option("--parent", type=int, help="Number of the model from whose weights it started.")
@click.option("--capacity", help="Capacity of the zoo from now on, as 10GB; unbounded at first.")
@click.option("--retain", help="Retain policy of the zoo from now on; at first modelkeeper.")
@json_option
def add(
    folder: Path,
    graph: Path | None,
    module: str | None,
    shape: str | None,
    weights: Path,
    task: str,
    dataset: str,
    accuracy: float,
    name: str | None,
    parent: int | None,
    capacity: str | None,
    retain: str | None,
    as_json: bool,
) -> None:
    """Add a trained model; over the capacity, the policy chooses which ones are evicted.

    With --module alone, the graph is made from your code; with --graph too, the code is only noted.
    Exit code 1: the policy does not keep the model.
    """
    from wattkeeper.live.zoo.tensors import check, read_safetensors
    from wattkeeper.live.zoo.zoo import Zoo
    from wattkeeper.scenarios.zoo import inputs

    if graph is None and module is None:
        raise click.UsageError("give --graph FILE or --module MODULE:CALLABLE")
    if module is not None and not inputs.MODULE.fullmatch(module):
        raise InputError(f"found {module!r} as --module; allowed: MODULE:CALLABLE")
    limit = None if capacity is None else inputs.capacity_bytes(capacity)
    tensors = read_safetensors(weights)
    if graph is not None:
        model_graph = inputs.graph_of(str(graph), shape)
    else:
        assert module is not None
        model = inputs.load_module(module)
        model_graph = inputs.graph_of_module(model, module, shape)
        tensors = inputs.with_all_names(tensors, model)
    check(tensors, model_graph, str(weights))
    store = Zoo(folder, limit, retain)
    added = store.add(
        model_graph,
        tensors,
        task=task,
        dataset=dataset,
        accuracy=accuracy,
        name=name,
        parent=parent,
        source=module or "",
    )
    if as_json:
        terminal.write(json.dumps(added._asdict(), indent=2))
    for model_id in added.evicted if not as_json else ():
        terminal.write(f"Evicted: model {model_id}")
    if added.model_id is None:
        terminal.write(f"{name or model_graph.name} is not kept: {added.reason}", err=True)
        click.get_current_context().exit(NOT_KEPT)
    if not as_json:
        terminal.write(f"model {added.model_id}: {name or model_graph.name}, in {folder}")


@zoo.command("list")
@_zoo
@json_option
def list_models(folder: Path, as_json: bool) -> None:
    """List the models of a zoo, in the order of their addition."""
    store = _open(folder)
    models = store.models()
    if as_json:
        terminal.write(json.dumps([model._asdict() for model in models], indent=2))
        return
    from wattkeeper.scenarios.cli.tables.zoo import print_models

    print_models(terminal.console(), store, models)


@zoo.command()
@_zoo
@click.option(
    "--child", required=True, metavar="FILE|MODULE:CALLABLE", help="A graph, or your code."
)
@_input
@click.option("--matcher", help="Matcher that ranks parents [saving, or that of the policy].")
@_task
@_dataset
@_origin
@_policy
@json_option
def match(
    folder: Path,
    child: str,
    shape: str | None,
    matcher: str | None,
    task: str | None,
    dataset: str,
    mutated_from: str | None,
    policy: str,
    as_json: bool,
) -> None:
    """Rank the models of a zoo as parents of a new one, the best one first.

    This says of each whether the new model can keep its function, and which share of the training
    it is expected to save. With --task, it also says which one the policy would choose.
    """
    from wattkeeper.live.zoo.parents import DEFAULT_MATCHER, choose_parents, parent_policy, rank
    from wattkeeper.live.zoo.snapshot import ZooSnapshot, read_zoo
    from wattkeeper.scenarios.cli.tables.zoo import MOST_ROWS, print_matches
    from wattkeeper.scenarios.zoo.inputs import graph_of
    from wattkeeper.scenarios.zoo.warm_start import describe_child, job_of

    store = _open(folder)
    config = parent_policy(policy)
    if matcher and task and "matcher" in type(config).model_fields:
        config = parent_policy(policy, {"matcher": matcher})
    ranked_by = matcher or str(getattr(config, "matcher", DEFAULT_MATCHER))
    model = describe_child(graph_of(child, shape), task or "", dataset, mutated_from)

    def ask(snapshot: ZooSnapshot) -> tuple[list[ParentMatch], int, ZooModel | None]:
        matches = rank(snapshot, model.graph, ranked_by, None if as_json else MOST_ROWS)
        chosen = choose_parents(config, snapshot, job_of(model)) if task else []
        return matches, len(snapshot.stored), next(iter(chosen), None)

    matches, many, parent = read_zoo(lambda: ZooSnapshot(store, model), ask)
    if as_json:
        rows = [
            {
                **_describe(match.model),
                "score": match.score,
                "score_over_own": match.over_own,
                "kept": match.relation.kept,
                "expected_saving": match.saving,
            }
            | ({"chosen": match.model == parent} if task else {})
            for match in matches
        ]
        terminal.write(json.dumps(rows, indent=2))
        return
    print_matches(terminal.console(), f"Parents of {child} by {ranked_by}", matches, many)
    if task:
        chosen = f"model {parent.model_id} ({parent.name})" if parent else "no parent"
        terminal.write(f"{config.kind} chooses {chosen}")


def _describe(model: ZooModel) -> dict[str, Any]:
    names = ("model_id", "name", "task", "dataset", "accuracy")
    return {name: getattr(model, name) for name in names}


@zoo.command()
@click.option("--graphs", type=PATH, required=True, help="Folder of graphs, JSON files.")
@click.option("--matcher", default="saving", help="Matcher that scores parents [saving].")
@click.option("--out", type=PATH, required=True, help="CSV file to write.")
@click.option(
    "--child", "children", multiple=True, metavar="NAME", help="Only this child; may be repeated."
)
def scores(graphs: Path, matcher: str, out: Path, children: tuple[str, ...]) -> None:
    """Score all ordered pairs of the graphs in a folder: parent, child, score, score over own."""
    from wattkeeper.scenarios.zoo.scores import write_scores

    with terminal.progress(matcher) as report:
        rows = write_scores(graphs, matcher, out, children, report)
    terminal.write(f"{rows:8} pairs: {out}")


@zoo.command("warm-start")
@_zoo
@click.option("--child", required=True, metavar="MODULE:CALLABLE", help="Your code of the child.")
@_input
@click.option("--out", type=PATH, required=True, help="Safetensors file to write.")
@_task
@_dataset
@_origin
@click.option("--parent", type=int, help="Number of the parent, instead of the policy's choice.")
@_policy
@click.option("--matcher", help="Matcher of the policy modelkeeper [modelkeeper-asbuilt].")
@click.option("--minimum", type=float, help="Least score of a parent, as the policy states it.")
@click.option("--trials", type=int, help="How many parents the policy relative has tried [1].")
@click.option(
    "--evaluate",
    metavar="MODULE:CALLABLE",
    help="Your code that takes a filled child and gives its metric on validation data.",
)
@click.option(
    "--trust", multiple=True, metavar="MODULE", help="Run code of parents from this module."
)
@json_option
def warm_start(
    folder: Path,
    child: str,
    shape: str | None,
    out: Path,
    task: str | None,
    dataset: str,
    mutated_from: str | None,
    parent: int | None,
    policy: str,
    matcher: str | None,
    minimum: float | None,
    trials: int | None,
    evaluate: str | None,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a child's initial weights, taken from the parent that a policy chooses.

    This imports and runs your code: the child's, and the parent's as noted when it was added, if
    that is in the same module as the child's or in one that --trust names.
    """
    from wattkeeper.live.zoo.parents import parent_policy
    from wattkeeper.scenarios.cli.tables.zoo import describe_start
    from wattkeeper.scenarios.zoo.warm_start import WarmStartRequest, warm_start

    if (task is None) == (parent is None):
        raise click.UsageError("give --task, for a parent of it, or --parent NUMBER")
    if parent is not None and (trials is not None or evaluate is not None):
        raise click.UsageError("--parent names the one parent: leave out --trials and --evaluate")
    given = {"matcher": matcher, "minimum": minimum, "trials": trials}
    config = parent_policy(
        policy, {name: value for name, value in given.items() if value is not None}
    )
    request = WarmStartRequest(
        child, shape, task, dataset, mutated_from, parent, config, trust, evaluate
    )
    start = warm_start(_open(folder), request, out)
    if as_json:
        about = {
            "parent": _describe(start.match.model),
            "score": start.match.score,
            "expected_saving": start.match.saving,
            "out": str(out),
            "tried": [
                {"model_id": model.model_id, "metric": metric} for model, metric in start.tried
            ],
        }
        terminal.write(json.dumps({**about, "transfer": start.report.model_dump()}, indent=2))
        return
    for line in describe_start(start):
        terminal.write(line)
    terminal.write(f"Weights: {out}")


@zoo.command()
@_zoo
@json_option
def gc(folder: Path, as_json: bool) -> None:
    """Remove what killed processes left behind; tensors of evicted models go at once anyway."""
    freed = _open(folder).gc()
    if as_json:
        terminal.write(json.dumps(freed._asdict(), indent=2))
        return
    terminal.write(f"removed {freed.files} files, {freed.bytes:,} bytes")
