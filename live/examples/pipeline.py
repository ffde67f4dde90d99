"""A small network that processes train as a pipeline, with clocks that a policy plans.

`python -m wattkeeper.live.examples.pipeline` starts a process for each stage; torchrun can, too.
The network is trained on the CPU, and synthetic devices emulate the clocks, time and energy of GPUs
from a table that is made up (docs/live-pipeline.md).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from torch import distributed

from wattkeeper.live import PipelineSession
from wattkeeper.live.devices import VARIABLE
from wattkeeper.live.examples.cnn import make_images
from wattkeeper.live.examples.pipeline_options import (
    GPU_TYPE,
    make_table,
    parse_options,
    schedule_of,
)
from wattkeeper.live.examples.pipeline_processes import run_ranks
from wattkeeper.live.examples.pipeline_stage import MICROBATCH, PipelineStage
from wattkeeper.live.pipeline.emulation import EmulatedPipeline, make_devices
from wattkeeper.live.pipeline.leader import PipelineLeader
from wattkeeper.policies.errors import InputError, WattkeeperError
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask


def train(options: argparse.Namespace, emulated: EmulatedPipeline) -> None:
    """Train one stage, in a process that torch.distributed has connected."""
    torch.set_num_threads(1)
    with PipelineSession(
        "mlp",
        microbatches=options.microbatches,
        iterations=options.iterations,
        tune=options.tune,
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
    if pipeline.leader is not None:
        describe(pipeline.leader, schedule_of(options), pipeline.replica, options)


def describe(
    leader: PipelineLeader, schedule: PipelineSchedule, replica: int, options: argparse.Namespace
) -> None:
    """Print what the iterations of a replica took."""
    assert leader.profile is not None
    fastest = PipelineTask(leader.profile, schedule).fastest
    measured = sum(record.measures for record in leader.records)
    lines = [
        f"emulated, no measurement: {len(leader.records)} iterations, {measured} of them to "
        "measure clocks" + f", replica {replica}" * (options.replicas > 1),
        f"  highest clocks, by the profile: {fastest.time_s:.3f} s, {fastest.energy_j:,.0f} J an "
        "iteration",
    ]
    for number in range(1, len(leader.plans) + 1):
        done = [record for record in leader.records if record.plan == number]
        if done:
            time_s = sum(record.time_s for record in done) / len(done)
            energy_j = sum(sum(record.energy_j) for record in done) / len(done)
            lines.append(
                f"  plan {number}, iterations {done[0].number} to {done[-1].number}: "
                f"{time_s:.3f} s, {energy_j:,.0f} J in the mean"
            )
    if options.output is not None:
        folder = options.output / f"replica-{replica}" if options.replicas > 1 else options.output
        lines.append(f"Results: {folder}")
    print("\n".join(lines), flush=True)


def run_rank(rank: int, options: argparse.Namespace, devices: Path) -> None:
    """Train the stage of one process on emulated devices."""
    try:
        table = make_table(options, rank // options.ranks)
        folder = devices / f"rank-{rank}"
        os.environ[VARIABLE] = make_devices(folder, GPU_TYPE, 1, table.clocks_mhz)
        train(options, table)
    except (WattkeeperError, RuntimeError) as error:  # the latter from torch: a neighbour is gone
        raise SystemExit(f"rank {rank}: {str(error).splitlines()[0]}") from None


def main(arguments: list[str] | None = None) -> int:
    """Start a process for each rank, and end all once one of them fails."""
    try:
        options = parse_options(arguments)
    except WattkeeperError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = partial(run_rank, options=options, devices=options.devices or Path(folder))
            if "RANK" not in os.environ:
                return int(not run_ranks(run, options.ranks * options.replicas))
            distributed.init_process_group("gloo")  # torchrun started this process as one of all
            world, needed = distributed.get_world_size(), options.ranks * options.replicas
            if world != needed:
                raise InputError(
                    f"torchrun started {world} processes; --ranks {options.ranks} and --replicas "
                    f"{options.replicas} need {needed}"
                )
            run(distributed.get_rank())
            distributed.destroy_process_group()
            return 0
    except WattkeeperError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    raise SystemExit(main())
