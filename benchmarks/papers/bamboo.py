"""Bamboo on a trace of spot nodes, or on random nodes, as its own artifact replays it.

Run it as `python -m benchmarks.papers.bamboo TRACE --model NAME`; README.md has the files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import mean
from typing import Any

import click

from benchmarks.papers.commands import PaperCommand, choose, counts, read_changes
from benchmarks.papers.replays.bamboo_alone import (
    BAMBOO_PROFILES,
    BambooProfile,
    on_demand,
    replay_bamboo_alone,
)
from benchmarks.papers.replays.inputs import SpotChange
from benchmarks.papers.replays.removal_sweep import RandomNodes, RemovalRun, replay_random_nodes
from benchmarks.papers.tables import print_replays
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.options import json_option, number_type

_CHANCE = number_type("a chance from 0 to 1", lambda n: 0 <= n <= 1)
_NODES = number_type("a whole number of nodes from 1 to 10000", lambda n: 1 <= n <= 1e4, whole=True)
_STEPS = number_type("a whole number of steps from 1 to 1e7", lambda n: 1 <= n <= 1e7, whole=True)
_SEEDS = number_type("a whole number of seeds from 1 to 1000", lambda n: 1 <= n <= 1000, whole=True)


def replay_alone(changes: Sequence[SpotChange], model: str) -> dict[str, Any]:
    """The replay of a model, as JSON values, with the same training on demand.

    Raises:
        InputError: As `replay_bamboo_alone`.
    """
    profile = BAMBOO_PROFILES[model]
    result, spot = replay_bamboo_alone(changes, profile)
    return {"model": model, **counts(result), **spot._asdict(), **_on_demand(profile)}


def replay_drawn(model: str, wanted: int, chance: float, steps: int, seeds: int) -> dict[str, Any]:
    """The replay on random nodes, mean over the seeds from 1 on, as JSON values.

    Raises:
        InputError: As `replay_random_nodes`.
    """
    profile = BAMBOO_PROFILES[model]
    runs = [
        replay_random_nodes(profile, RandomNodes(wanted, chance, seed), steps)
        for seed in range(1, seeds + 1)
    ]
    rows = [_drawn(run) for run in runs]
    means = {name: mean(row[name] for row in rows) for name in rows[0]}
    return {"model": model, "loss_chance": chance, **means, **_on_demand(profile)}


def _drawn(run: RemovalRun) -> dict[str, float]:
    replay = run.replay
    return {
        "preemptions": replay.preemptions,
        "fatal": replay.fatal,
        "interruption_h": run.interruption_h,
        "lifetime_h": run.lifetime_h,
        "avg_instances": replay.avg_instances,
        **run.economy._asdict(),
    }


def _on_demand(profile: BambooProfile) -> dict[str, float]:
    return {f"on_demand_{name}": value for name, value in on_demand(profile)._asdict().items()}


@click.command("python -m benchmarks.papers.bamboo", cls=PaperCommand)
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
def main(
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
    if (trace is None) == (loss_chance is None):
        raise click.UsageError("give either TRACE or --loss-chance")
    if loss_chance is None and (nodes or steps or seeds):
        raise click.UsageError("--nodes, --steps and --seeds need --loss-chance")
    chosen = choose("model", models, list(BAMBOO_PROFILES))
    if trace is not None:
        changes = read_changes(trace)
        rows = [replay_alone(changes, model) for model in chosen]
    else:
        assert loss_chance is not None
        rows = [
            replay_drawn(model, nodes or 48, loss_chance, steps or 22_194, seeds or 30)
            for model in chosen
        ]
    if as_json:
        terminal.write(json.dumps(rows, indent=2))
    else:
        print_replays(terminal.console(), "Bamboo's own replay", rows)


if __name__ == "__main__":
    main()
