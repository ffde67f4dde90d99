"""The options of the example of a pipeline, checked before any process starts."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Final

from wattkeeper.live.examples.policy_option import parse_policy
from wattkeeper.live.pipeline.arguments import PipelineArguments, RankFacts
from wattkeeper.live.pipeline.emulation import EmulatedPipeline, SlowSpell
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.pipeline.profile import PipelineProfile
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.traces.generate.pipelines import SyntheticPipeline, generate_pipeline
from wattkeeper.traces.pipelines import read_pipeline

GPU_TYPE: Final = "emulated"
EXAMPLE: Final = '{"kind": "perseus", "unit_time_s": 0.005}'
SLOW: Final = re.compile(r"(\d+):(\d+)-(\d+):(\d+(?:\.\d+)?)")


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line.

    Raises:
        WattkeeperError: If a process would refuse them.
    """
    parser = argparse.ArgumentParser(prog="python -m wattkeeper.live.examples.pipeline")
    parser.add_argument("--ranks", type=int, default=4, help="stages, each a process")
    parser.add_argument("--replicas", type=int, default=1, help="equal pipelines")
    parser.add_argument("--microbatches", type=int, default=4, help="of an iteration")
    parser.add_argument("--iterations", type=int, default=40, help="with those that measure")
    parser.add_argument(
        "--tune",
        default="pipeline-exact",
        help=f"policy: its name, or JSON as in a scenario, {EXAMPLE}",
    )
    parser.add_argument("--table", type=Path, help="CSV file: what instructions take; made up")
    parser.add_argument("--blocking-power-w", type=float, default=75.0, help="of the table")
    parser.add_argument("--profile", type=Path, help="CSV file with points that were measured")
    parser.add_argument(
        "--slow",
        action="append",
        default=[],
        metavar="RANK:FIRST-LAST:FACTOR",
        help="iterations in which a rank is slow, counted from the first one after the measuring",
    )
    parser.add_argument("--output", type=Path, help="folder for profile.csv and pipeline.json")
    parser.add_argument("--devices", type=Path, help="folder of the emulated devices")
    parser.add_argument("--verbose", action="store_true", help="print the loss")
    options = parser.parse_args(arguments)
    options.tune = parse_policy("tune", options.tune, EXAMPLE)
    check(options)
    return options


def check(options: argparse.Namespace) -> None:
    """Check the options before any process starts."""
    for name in ("ranks", "replicas", "microbatches"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name} is {getattr(options, name)}; must be at least 1")
    arguments_of(options).check()
    if options.profile is not None:
        arguments_of(options).read_profile(schedule_of(options), (1,) * options.ranks)
    make_table(options, 0)


def schedule_of(options: argparse.Namespace) -> PipelineSchedule:
    """The schedule of a replica."""
    return PipelineSchedule("1f1b", options.ranks, options.microbatches, 1)


def arguments_of(options: argparse.Namespace) -> PipelineArguments:
    """The arguments of the sessions."""
    return PipelineArguments(
        "mlp",
        options.microbatches,
        options.iterations,
        options.tune,
        "1f1b",
        1,
        options.replicas,
        None,
        options.profile,
        1,
        options.blocking_power_w,
        options.output,
        options.ranks * options.replicas,
    )


def make_table(options: argparse.Namespace, replica: int) -> EmulatedPipeline:
    """What instructions take on the emulated devices of a replica."""
    if options.table is not None:
        stages = read_pipeline(options.table).stages
        if len(stages) != options.ranks:
            raise InputError(
                f"{options.table} has {len(stages)} stages, found --ranks {options.ranks}; must be "
                "equal"
            )
    else:
        times_s = SyntheticPipeline().forward_s
        model = SyntheticPipeline(
            forward_s=tuple(times_s[rank % len(times_s)] for rank in range(options.ranks))
        )
        stages = generate_pipeline(model).stages
    emulated = EmulatedPipeline(PipelineProfile(stages, options.blocking_power_w))
    left = options.iterations
    if options.profile is None:
        facts = [RankFacts(1, GPU_TYPE, emulated.clocks_mhz)] * options.ranks
        left -= arguments_of(options).make_sweep(facts).iterations_left
    slow = [parse_slow(text, options, left) for text in options.slow]
    return emulated._replace(
        slow=tuple(spell for slow_replica, spell in slow if slow_replica == replica)
    )


def parse_slow(text: str, options: argparse.Namespace, iterations: int) -> tuple[int, SlowSpell]:
    """The replica that is slow, and when; `iterations`: of the training after measuring.

    Raises:
        InputError: If there is no such rank or iteration, or it is not slow.
    """
    parts = SLOW.fullmatch(text)
    if parts is None:
        raise InputError(f"--slow is {text!r}; allowed: RANK:FIRST-LAST:FACTOR, as in 1:20-40:1.3")
    rank, first, last, factor = int(parts[1]), int(parts[2]), int(parts[3]), float(parts[4])
    processes = options.ranks * options.replicas
    for applies, wrong in (
        (rank >= processes, f"the ranks are 0 to {processes - 1}"),
        (not 1 <= first <= last, "the first iteration is at least 1, and not after the last one"),
        (first > iterations, f"{iterations} iterations follow the measuring, which does not count"),
        (not 1 < factor < math.inf, "the factor is above 1"),
    ):
        if applies:
            raise InputError(f"--slow is {text!r}; {wrong}")
    replica, stage = divmod(rank, options.ranks)
    return replica, SlowSpell(stage, first, last, factor)
