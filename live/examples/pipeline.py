"""A small network that processes train as a pipeline, with clocks that a policy plans.

`python -m wattkeeper.live.examples.pipeline` starts a process for each stage; torchrun can, too.
The network is trained on the CPU, and synthetic devices emulate the clocks, time and energy of GPUs
from a table that is made up (docs/live-pipeline.md).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import distributed

from wattkeeper.live import PipelineSession
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.examples.cnn import make_images
from wattkeeper.live.examples.pipeline_processes import run_ranks
from wattkeeper.live.examples.pipeline_stage import MICROBATCH, PipelineStage
from wattkeeper.live.pipeline.emulation import EmulatedPipeline, SlowSpell, make_devices
from wattkeeper.policies.errors import InputError, WattkeeperError
from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.policies.registry import find_config
from wattkeeper.traces.generate.pipelines import SyntheticPipeline, generate_pipeline
from wattkeeper.traces.pipelines import read_pipeline

SLOW: Final = re.compile(r"(\d+):(\d+)-(\d+):(\d+(?:\.\d+)?)")


def train(options: argparse.Namespace, emulated: EmulatedPipeline) -> None:
    """Train one stage, in a process that torch.distributed has connected."""
    torch.set_num_threads(1)
    with PipelineSession(
        "mlp",
        microbatches=options.microbatches,
        iterations=options.iterations,
        tune=find_config("tune", options.tune.pop("kind"), options.tune),
        replicas=options.replicas,
        profile=options.profile,
        profile_iterations=1,
        blocking_power_w=options.profile and options.blocking_power_w,
        output=options.output,
        emulate=emulated,
    ) as pipeline:
        ranks = options.ranks
        stage = PipelineStage(pipeline.rank, ranks, pipeline.replica * ranks)
        replicas = [[rank + ranks * r for r in range(options.replicas)] for rank in range(ranks)]
        stage.connect(replicas)
        for iteration in pipeline.iterations():
            seed = iteration * options.replicas + pipeline.replica
            images, labels = make_images(seed, MICROBATCH * options.microbatches)
            images = images.view(options.microbatches, MICROBATCH, -1)
            labels = labels.view(options.microbatches, MICROBATCH)
            for instruction in pipeline.program:
                number = instruction.microbatch
                if instruction.kind == "forward":
                    inputs = stage.receive(-1) if pipeline.rank else images[number]
                    with pipeline.instruction(instruction):
                        outputs = stage.forward(inputs, number)
                    stage.send(outputs, 1)
                else:
                    gradient = stage.receive(1)
                    with pipeline.instruction(instruction):
                        result = stage.backward(number, labels[number], gradient)
                    stage.send(result, -1)
            stage.step(replicas[pipeline.rank])
            if options.verbose and pipeline.rank == ranks - 1:
                print(f"iteration {iteration}: loss {stage.loss / options.microbatches:.3f}")
            stage.loss = 0.0


def parse_slow(text: str, ranks: int) -> tuple[int, SlowSpell]:
    """The replica that is slow, and when."""
    parts = SLOW.fullmatch(text)
    if parts is None:
        raise InputError(f"--slow is {text!r}; allowed: RANK:FIRST-LAST:FACTOR, as in 1:20-40:1.3")
    replica, stage = divmod(int(parts[1]), ranks)
    return replica, SlowSpell(stage, int(parts[2]), int(parts[3]), float(parts[4]))


def make_table(options: argparse.Namespace, replica: int) -> EmulatedPipeline:
    """What instructions take on the emulated devices of a replica."""
    if options.table is not None:
        stages = read_pipeline(options.table).stages
    else:
        times_s = SyntheticPipeline().forward_s
        model = SyntheticPipeline(
            forward_s=tuple(times_s[rank % len(times_s)] for rank in range(options.ranks))
        )
        stages = generate_pipeline(model).stages
    slow = [parse_slow(text, options.ranks) for text in options.slow]
    return EmulatedPipeline(
        PipelineProfile(stages, options.blocking_power_w),
        tuple(spell for slow_replica, spell in slow if slow_replica == replica),
    )


def run_rank(rank: int, options: argparse.Namespace, devices: Path) -> None:
    """Train the stage of one process on emulated devices."""
    try:
        table = make_table(options, rank // options.ranks)
        folder = devices / f"rank-{rank}"
        os.environ[VARIABLE] = make_devices(folder, "emulated", 1, table.clocks_mhz)
        train(options, table)
    except (WattkeeperError, RuntimeError) as error:  # the latter from torch: a neighbour is gone
        raise SystemExit(f"rank {rank}: {str(error).splitlines()[0]}") from None


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m wattkeeper.live.examples.pipeline")
    parser.add_argument("--ranks", type=int, default=4, help="stages, each a process")
    parser.add_argument("--replicas", type=int, default=1, help="equal pipelines")
    parser.add_argument("--microbatches", type=int, default=4, help="of an iteration")
    parser.add_argument("--iterations", type=int, default=40, help="with those that profile")
    parser.add_argument("--tune", default="pipeline-exact", help="policy: its name, or JSON as in "
                        'a scenario, {"kind": "perseus", "unit_time_s": 0.005}')  # fmt: skip
    parser.add_argument("--table", type=Path, help="CSV file: what instructions take; made up")
    parser.add_argument("--blocking-power-w", type=float, default=75.0, help="of the table")
    parser.add_argument("--profile", type=Path, help="CSV file with points that were measured")
    parser.add_argument("--slow", action="append", default=[], metavar="RANK:FIRST-LAST:FACTOR",
                        help="iterations in which a rank is slow, without profiling")  # fmt: skip
    parser.add_argument("--output", type=Path, help="folder for profile.csv and pipeline.json")
    parser.add_argument("--devices", type=Path, help="folder of the emulated devices")
    parser.add_argument("--verbose", action="store_true", help="print the loss")
    options = parser.parse_args(arguments)
    named = options.tune.startswith("{")
    options.tune = json.loads(options.tune) if named else {"kind": options.tune}
    return options


def main() -> int:
    """Start a process for each rank, and end all once one of them fails."""
    options = parse_options()
    try:
        for text in options.slow:
            parse_slow(text, options.ranks)
        with tempfile.TemporaryDirectory() as folder:
            run = partial(run_rank, options=options, devices=options.devices or Path(folder))
            if "RANK" not in os.environ:
                return int(not run_ranks(run, options.ranks * options.replicas))
            distributed.init_process_group("gloo")  # torchrun started this process as one of all
            run(distributed.get_rank())
            distributed.destroy_process_group()
            return 0
    except WattkeeperError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    raise SystemExit(main())
