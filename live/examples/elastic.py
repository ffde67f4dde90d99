"""A small network that processes train together while some of them are killed and come back.

`python -m wattkeeper.live.examples.elastic` starts a process a node, kills one of them again and
again, and says in the end what that cost, and whether the training ended as an undisturbed one.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from wattkeeper.live import ModuleReplica, train_elastic
from wattkeeper.live.elastic.records import ElasticResults
from wattkeeper.live.elastic.replica import train_alone
from wattkeeper.live.examples.cnn import make_images, make_network
from wattkeeper.live.examples.policy_option import parse_policy
from wattkeeper.policies.errors import InputError, WattkeeperError
from wattkeeper.sim.cluster.losses import NodeChange

BATCH, MICROBATCH = 64, 8
LEARNING_RATE = 0.02
EXAMPLE = '{"kind": "varuna", "every_steps": 5}'


def sum_of_losses(model: nn.Module, step: int, first: int, end: int) -> Tensor:
    """The loss of some samples, which follow from their numbers."""
    images, labels = make_images(step * BATCH + first, end - first)
    return nn.functional.cross_entropy(model(images), labels, reduction="sum")


def make_replica() -> ModuleReplica:
    """The network of a worker."""
    torch.manual_seed(0)
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
    return ModuleReplica(model, optimizer, sum_of_losses)


def draw_changes(options: argparse.Namespace) -> list[NodeChange]:
    """Kills at equal distances, of nodes that are drawn, and their returns.

    Raises:
        InputError: If a number or a time is none of these.
    """
    for name, least in (("nodes", 1), ("kills", 0), ("every_s", 0), ("away_s", 0)):
        value = getattr(options, name)
        if not least <= value < math.inf:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is {value}; must be at least {least}, and finite")
    draw = random.Random(options.seed)
    changes = []
    for number in range(1, options.kills + 1):
        node, time_s = draw.randrange(options.nodes), number * options.every_s
        changes.append(NodeChange(time_s, "down", node))
        changes.append(NodeChange(time_s + options.away_s, "up", node))
    return changes


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m wattkeeper.live.examples.elastic")
    parser.add_argument("--nodes", type=int, default=4, help="each a process")
    parser.add_argument("--least-nodes", type=int, default=1, help="the fewest to train on")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--replan", default="oobleck", help=f"policy: its name, or JSON as in a scenario, {EXAMPLE}"
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every-s", type=float, default=1.0, help="time between two kills")
    parser.add_argument("--away-s", type=float, default=1.5, help="time until a node is back")
    parser.add_argument("--seed", type=int, default=0, help="of the nodes that are killed")
    parser.add_argument("--output", type=Path, help="folder for results; none if absent")
    return parser.parse_args(arguments)


def describe(results: ElasticResults, alone: list[float]) -> str:
    """What a training cost, beside an undisturbed one."""
    pauses = [shape for shape in results.shapes[1:] if shape.is_predicted]
    measured_s = sum(shape.pause_s for shape in pauses)
    predicted_s = sum(shape.predicted_pause_s for shape in pauses)
    same = "equal in each step" if list(results.losses) == alone else "not equal"
    return (
        f"{len(results.losses)} steps, {len(results.lost)} workers lost, "
        f"{results.lost_steps} finished steps lost and trained again\n"
        f"  {len(pauses)} whole pauses: {measured_s:.3f} s, predicted {predicted_s:.3f} s\n"
        f"  last loss {results.losses[-1]:.6f}, undisturbed {alone[-1]:.6f}: {same}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Train, and train alone to compare."""
    options = parse_options(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = train_elastic(
                make_replica,
                job="cnn",
                steps=options.steps,
                batch=BATCH,
                microbatch=MICROBATCH,
                nodes=options.nodes,
                least_nodes=options.least_nodes,
                replan=parse_policy("replan", options.replan, EXAMPLE),
                changes=draw_changes(options),
                output=options.output or folder,
            )
    except WattkeeperError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    _, alone = train_alone(make_replica, options.steps, BATCH, MICROBATCH)
    print(describe(results, alone))
    if options.output is not None:
        print(f"Results: {options.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
