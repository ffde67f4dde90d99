"""What commands cost beside simulation: their start, and a sweep of many small runs.

CPU seconds of whole commands, the least of several tries; then of a sweep of `quickstart` with
1,000 runs or more, over that of as many runs one after the other in a process that has begun.

    .venv/bin/python -m benchmarks.start [RUNS [WORKERS]]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.run.unit import run_unit
from wattkeeper.scenarios.spec.loading import load

TRIES = 5
RUNS = 1000


LIBRARIES = """
from wattkeeper.traces.process_setup import configure_process
configure_process()
import click, pyarrow.compute, pyarrow.parquet, pydantic, pydantic.types, rich.console, yaml
"""


def wattkeeper(*arguments: str) -> float:
    """CPU seconds of a command and of its worker processes."""
    return cpu_s(str(Path(sys.executable).with_name("wattkeeper")), *arguments)


def cpu_s(*command: str) -> float:
    """CPU seconds of a process and of those that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show_start(what: str, start: Callable[..., float], *arguments: str) -> None:
    """The least CPU seconds of several tries."""
    print(f"{what:40} {min(start(*arguments) for _ in range(TRIES)):8.3f} s CPU")


def single_run(tries: int = 20 * TRIES) -> float:
    """Mean CPU seconds of a run of `quickstart` in this process, without writing results."""
    loaded = load("quickstart")
    inputs = read_inputs(loaded).runs
    specs = loaded.runs
    for spec in specs:
        run_unit(spec, inputs[spec.variant.name])
    began = time.process_time()
    for spec in islice(cycle(specs), tries):
        run_unit(spec, inputs[spec.variant.name])
    return (time.process_time() - began) / tries


def sweep(runs: int, workers: int, out: Path) -> float:
    """CPU seconds of a sweep of `quickstart` with so many runs, a multiple of 20."""
    etas = ",".join(f"{number / runs:.6g}" for number in range(runs // 20))
    return wattkeeper(
        "run",
        "quickstart",
        "--sweep",
        f"objective.eta={etas}",
        "--workers",
        str(workers),
        "--out",
        str(out),
    )


def main() -> None:
    runs, workers = [*map(int, sys.argv[1:]), *(RUNS, 1)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WATTKEEPER_TRACES"] = folder
        wattkeeper(
            "traces",
            "generate",
            "jobs",
            "--jobs",
            "1",
            "--load",
            "0.9",
            "--gpus",
            "512",
            "--name",
            "one",
        )
        out = ("--out", f"{folder}/results")
        show_start("Python with its libraries", cpu_s, sys.executable, "-c", LIBRARIES)
        show_start("wattkeeper --help", wattkeeper, "--help")
        show_start("wattkeeper validate quickstart", wattkeeper, "validate", "quickstart")
        show_start(
            "wattkeeper run scheduler-pool, one job",
            wattkeeper,
            "run",
            "scheduler-pool",
            "--set",
            "workload.trace=one",
            *out,
        )
        show_start("wattkeeper run quickstart", wattkeeper, "run", "quickstart", *out)
        single_s = single_run()
        whole_s = sweep(runs, workers, Path(folder) / "sweep")
    print(f"a run of quickstart {1000 * single_s:31.2f} ms CPU")
    print(
        f"a sweep of {runs:,} runs {'':21} {whole_s:8.2f} s CPU, {whole_s / runs / single_s:.2f} "
        f"times {runs:,} single ones"
    )


if __name__ == "__main__":
    main()
