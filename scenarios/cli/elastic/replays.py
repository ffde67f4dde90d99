"""The group `wattkeeper elastic`, and the commands that replay what was published.

Only what a command needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.elastic.plans import morph, plan, reconfigure
from wattkeeper.scenarios.cli.options import FILE, json_option, number_type

_CHANCE = number_type("a chance from 0 to 1", lambda n: 0 <= n <= 1)
_NODES = number_type("a whole number of nodes from 1 to 10000", lambda n: 1 <= n <= 1e4, whole=True)
_STEPS = number_type("a whole number of steps from 1 to 1e7", lambda n: 1 <= n <= 1e7, whole=True)
_SEEDS = number_type("a whole number of seeds from 1 to 1000", lambda n: 1 <= n <= 1000, whole=True)


@click.group("elastic")
def elastic() -> None:
    """Replay elastic training as published, and plan pipelines.

    Simulate elastic jobs by `wattkeeper run` (workload.kind: elastic): the published replays let
    training go on in pauses, among other accidents, and are there to compare with.
    """


@elastic.command()
@click.argument("trace")
@click.option(
    "--rates",
    "path",
    type=FILE,
    required=True,
    help="CSV file of rates: system, model, num_nodes, samples_per_s.",
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="oobleck, varuna, varuna-nockpt or bamboo, may be repeated [all].",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="A model of the artifact, may be repeated [all].",
)
@click.option(
    "--recorded", is_flag=True, help="TRACE is recorded: Varuna then loses no work of small models."
)
@json_option
def replay(
    trace: str,
    path: Path,
    systems: tuple[str, ...],
    models: tuple[str, ...],
    recorded: bool,
    as_json: bool,
) -> None:
    """Replay Oobleck, Varuna and Bamboo on TRACE as Oobleck's artifact does (SOSP '23).

    TRACE is a trace of node events, by name or path. The constants of the models are the
    artifact's.
    """
    from wattkeeper.scenarios.elastic import published
    from wattkeeper.sim.published_replays.published_models import PUBLISHED_MODELS
    from wattkeeper.traces.node_rates import read_node_rates

    chosen = published.choose("system", systems, published.SYSTEMS)
    of_models = published.choose("model", models, list(PUBLISHED_MODELS))
    if recorded and not any(system.startswith("varuna") for system in chosen):
        raise click.UsageError("--recorded has no effect without varuna")
    changes = published.read_changes(trace)
    rates = read_node_rates(path)
    rows = list(published.replay_trace(changes, rates, chosen, of_models, recorded=recorded))
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
        return
    from wattkeeper.scenarios.cli.tables.elastic import print_replays

    print_replays(terminal.console(), f"Published replays on {trace}", rows)


@elastic.command()
@click.argument("trace", required=False)
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A model of the artifact, may be repeated.",
)
@click.option("--loss-chance", type=_CHANCE, help="Instead of TRACE: a node's, each hour.")
@click.option("--nodes", type=_NODES, help="With --loss-chance: nodes wanted [48].")
@click.option("--steps", type=_STEPS, help="With --loss-chance: length [22194].")
@click.option("--seeds", type=_SEEDS, help="With --loss-chance: seeds, from 1 on [30].")
@json_option
def bamboo(
    trace: str | None,
    models: tuple[str, ...],
    loss_chance: float | None,
    nodes: int | None,
    steps: int | None,
    seeds: int | None,
    as_json: bool,
) -> None:
    """Replay Bamboo on TRACE, or on random nodes, as its own artifact does (NSDI '23).

    TRACE is a trace of node events, by name or path; 12 hours of it are replayed. Models: GPT-2,
    BERT, ResNet, GNMT, VGG, AlexNet.
    """
    from wattkeeper.scenarios.elastic import published
    from wattkeeper.sim.published_replays.bamboo_alone import BAMBOO_PROFILES

    if (trace is None) == (loss_chance is None):
        raise click.UsageError("give either TRACE or --loss-chance")
    if loss_chance is None and (nodes or steps or seeds):
        raise click.UsageError("--nodes, --steps and --seeds need --loss-chance")
    chosen = published.choose("model", models, list(BAMBOO_PROFILES))
    if trace is not None:
        changes = published.read_changes(trace)
        rows = [published.replay_alone(changes, model) for model in chosen]
    else:
        assert loss_chance is not None
        rows = [
            published.replay_drawn(model, nodes or 48, loss_chance, steps or 22_194, seeds or 30)
            for model in chosen
        ]
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
        return
    from wattkeeper.scenarios.cli.tables.elastic import print_replays

    print_replays(terminal.console(), "Bamboo's own replay", rows)


elastic.add_command(plan)
elastic.add_command(reconfigure)
elastic.add_command(morph)
