"""What `wattkeeper study` costs on a Slurm log of 100,000 jobs.

The log is made up: sizes from 1 to 64 GPUs in three partitions, day and night, steps, time limits
(3 % have none), measured energy of 70 % of the jobs, and starts by a list scheduler of 64 nodes
with 8 GPUs. At a load of 0.85 jobs wait little; at 1.05 thousands of them queue. CPU seconds are
of the command with its worker processes.

`python benchmarks/log_study.py FOLDER [JOBS]` keeps logs and studies in a folder.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

JOBS = 100_000
LOADS = (0.85, 1.05)
NODES, GPUS_A_NODE = 64, 8
SIZES = np.array([1, 2, 4, 8, 16, 32, 64])
SHARES = np.array([0.45, 0.15, 0.15, 0.15, 0.06, 0.03, 0.01])
BEGIN = datetime.datetime(2024, 3, 1)
DAY_S = 86_400
FIELDS = (
    "JobID|User|Account|QOS|Partition|Submit|Start|End|ElapsedRaw|Timelimit|State|AllocTRES|"
    "ReqTRES|NNodes|ConsumedEnergyRaw"
)


def date(at_s: int) -> str:
    """A date as sacct prints it."""
    return (BEGIN + datetime.timedelta(seconds=at_s)).isoformat()


def span(length_s: int) -> str:
    """A time limit as sacct prints it."""
    days, rest = divmod(length_s, DAY_S)
    return f"{f'{days}-' if days else ''}{datetime.timedelta(seconds=rest)!s:0>8}"


def submissions(rng: np.random.Generator, jobs: int, length_s: float) -> list[int]:
    """Times of submission, s: twice as many by day as by night."""
    times_s = rng.uniform(0, length_s, 3 * jobs)
    by_day = (times_s % DAY_S >= 8 * 3600) & (times_s % DAY_S < 20 * 3600)
    kept_s = times_s[by_day | (rng.random(3 * jobs) < 0.5)][:jobs]
    return sorted(kept_s.astype(int).tolist())


def starts(submit_s: list[int], run_s: list[int], gpus: list[int]) -> list[int]:
    """Start of each job, s: in the order of submission, as soon as nodes have its GPUs free."""
    free_s = np.zeros((NODES, GPUS_A_NODE), dtype=np.int64)
    """When the GPUs of each node are free, in order."""
    begun = []
    for submitted_s, length_s, wanted in zip(submit_s, run_s, gpus, strict=True):
        each = min(wanted, GPUS_A_NODE)
        at_s = free_s[:, each - 1]
        nodes = np.argsort(at_s, kind="stable")[: -(-wanted // GPUS_A_NODE)]
        start_s = max(submitted_s, int(at_s[nodes[-1]]))
        free_s[nodes, :each] = start_s + length_s
        free_s[nodes] = np.sort(free_s[nodes])
        begun.append(start_s)
    return begun


def write_log(path: Path, jobs: int, load: float) -> None:
    """Write a log of jobs whose GPU hours are that load of the cluster until the last one."""
    rng = np.random.default_rng(18)
    gpus = rng.choice(SIZES, jobs, p=SHARES).tolist()
    run_s = rng.lognormal(8.0, 1.6, jobs).clip(30, 3 * DAY_S).astype(int).tolist()
    held_s = sum(size * each_s for size, each_s in zip(gpus, run_s, strict=True))
    submit_s = submissions(rng, jobs, held_s / (load * NODES * GPUS_A_NODE))
    lines = [FIELDS]
    for index, (submitted_s, start_s, length_s, size) in enumerate(
        zip(submit_s, starts(submit_s, run_s, gpus), run_s, gpus, strict=True)
    ):
        job, partition = 100_000 + index, "small" if size < 4 else "gpu" if size < 16 else "large"
        limits_s = 3600 * np.array([1, 4, 12, 24, 72, 168])
        own_s = int(limits_s[max(rng.integers(6), np.searchsorted(limits_s, length_s))])
        limit = span(own_s) if rng.random() < 0.97 else "UNLIMITED"
        energy = str(int(length_s * size * rng.uniform(180, 330))) if rng.random() < 0.7 else ""
        state = rng.choice(
            ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1001"], p=[0.82, 0.09, 0.04, 0.05]
        )
        user, account, nodes = f"u{index % 211}", f"acc{index % 17}", -(-size // GPUS_A_NODE)
        tres = f"billing={size},cpu={12 * size},gres/gpu:a100={size},gres/gpu={size},node={nodes}"
        times = f"{date(start_s)}|{date(start_s + length_s)}|{length_s}"
        lines.append(
            f"{job}|{user}|{account}|normal|{partition}|{date(submitted_s)}|{times}|"
            f"{limit}|{state}|{tres}|{tres}|{nodes}|{energy}"
        )
        lines.append(
            f"{job}.batch||{account}|||{date(start_s)}|{times}||{state.split()[0]}|"
            f"cpu={12 * size},node=1||1|{energy}"
        )
    path.write_text("\n".join(lines) + "\n")


def measure(log: Path, nodes: Path, out: Path) -> None:
    """Run the command, and print what it cost."""
    command = [
        sys.executable,
        "-m",
        "wattkeeper.scenarios",
        "study",
        "slurm",
        str(log),
        "--nodes",
        str(nodes),
        "--price",
        "0.2",
        "--currency",
        "EUR",
        "--carbon",
        "350",
        "--replace",
        "--out",
        str(out),
    ]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"wattkeeper study: exit status {status}")
    cpu_s, wall_s = used.ru_utime + used.ru_stime, time.monotonic() - began
    print(
        f"{out.name:12} {cpu_s:7.1f} s CPU {wall_s:7.1f} s wall {used.ru_maxrss / 1024:6.0f} MiB "
        "of the largest process"
    )


def main() -> None:
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else JOBS
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        folder.mkdir(parents=True, exist_ok=True)
        nodes = folder / "nodes.yaml"
        nodes.write_text(
            f"nodes:\n  - {{gpu: a100, count: {NODES}, gpus: {GPUS_A_NODE}}}\npue: 1.3\n"
        )
        for load in LOADS:
            log = folder / f"sacct-{load:g}.log"
            if not log.exists():
                write_log(log, jobs, load)
            measure(log, nodes, folder / f"load-{load:g}")


if __name__ == "__main__":
    main()
