"""Side by side: CPU seconds of peers of the package index and of wattkeeper for the same work.

The jobs of the trace `philly` in order of submission, first in first out on a pool of 512 GPUs; the
first 3,000 jobs, on 128 GPUs, and all. Each peer is a process of its own, and its CPU seconds are
those of the whole process. wattkeeper's are of the whole command: results with energy and a page
included, which peers do not have. A peer that makes another schedule ends the comparison.

    python3 -m venv peers && peers/bin/pip install -r benchmarks/peers/requirements.txt
    .venv/bin/python -m benchmarks.peers peers/bin/python
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from benchmarks.peers.work import Answer, Work, write_work
from benchmarks.schedulers import wattkeeper
from wattkeeper.traces.library import store

PEERS = {
    "SimPy, callbacks alone": "simpy_callbacks",
    "SimPy, a process a job": "simpy_processes",
    "simulus": "simulus_processes",
    "salabim": "salabim_components",
    "AccaSim": "accasim_dispatcher",
}
WORKS = ((3_000, 128), (None, 512))
MOST_S = 100
"""CPU seconds after which a peer is ended."""


class Cost(NamedTuple):
    """CPU seconds of a process, and what it found; None if it was ended."""

    cpu_s: float
    answer: Answer | None


def read_jobs(jobs: int | None, gpus: int) -> Work:
    """The first jobs of the trace that fit into the pool; None: all."""
    table = store.find("philly").tables["jobs"]
    columns = [table[name].to_numpy() for name in ("submit_time_s", "duration_s", "gpus")]
    order = np.argsort(columns[0], kind="stable")
    submit_s, run_s, demand = (column[order].astype(np.int64) for column in columns)
    fits = np.flatnonzero(demand <= gpus)[:jobs]
    submit_s = submit_s[fits] - submit_s[fits[0]]
    return Work(gpus, submit_s.tolist(), run_s[fits].tolist(), demand[fits].tolist())


def run_peer(python: str, module: str, path: Path, gpus: int) -> Cost:
    """Let a peer do the work; it is ended after `MOST_S` CPU seconds."""
    log = path.with_suffix(".log")
    peer = f"{python} -m benchmarks.peers.{module} {path} {gpus} 2>{log}"
    limited = f"ulimit -t {MOST_S}; exec {peer}"
    process = subprocess.Popen(["sh", "-c", limited], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    _, status, used = os.wait4(process.pid, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Cost(cpu_s, None)
    if status:
        sys.exit(f"{module}: exit status {os.waitstatus_to_exitcode(status)}\n{log.read_text()}")
    return Cost(cpu_s, Answer(**json.loads(lines[-1])))


def run_wattkeeper(path: Path, gpus: int, folder: Path) -> Cost:
    """Import the work as a trace, and run it from the command line; the import is not counted."""
    os.environ["WATTKEEPER_TRACES"] = str(folder / "library")
    wattkeeper("traces", "import", "csv", str(path), "--name", "work")
    out = folder / "results"
    settings = ("workload.trace=work", f"cluster.gpus={gpus}")
    options = [part for setting in settings for part in ("--set", setting)]
    cpu_s, _ = wattkeeper("run", "scheduler-pool", *options, "--out", str(out))
    rows = pq.read_table(
        out / "jobs.parquet", columns=["submit_time_s", "start_time_s", "finish_time_s"]
    )
    submit_s, start_s, finish_s = (column.to_numpy() for column in rows.columns)
    return Cost(cpu_s, Answer(float((start_s - submit_s).mean()), float(finish_s.max()), math.nan))


def show(name: str, cost: Cost, own: Cost) -> None:
    """A row of the table; it ends the comparison if the schedule is another one."""
    assert own.answer is not None
    if cost.answer is not None:
        for found, expected in zip(cost.answer[:2], own.answer[:2], strict=True):
            if not math.isclose(found, expected, rel_tol=1e-9):
                sys.exit(f"{name}: another schedule: {found} for {expected}")
    more = "" if cost.answer is not None else "more than "
    print(f"{name:24}{more + f'{cost.cpu_s:.2f}':>18} s {cost.cpu_s / own.cpu_s:8.2f}")


def main() -> None:
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    for jobs, gpus in WORKS:
        work = read_jobs(jobs, gpus)
        with tempfile.TemporaryDirectory() as folder:
            library = os.environ.get("WATTKEEPER_TRACES")
            path = Path(folder) / "work.csv"
            write_work(path, work)
            own = run_wattkeeper(path, gpus, Path(folder))
            assert own.answer is not None
            print(
                f"{len(work.submit_s):,} jobs on {gpus} GPUs, mean wait {own.answer.wait_s:,.0f}"
                " s: CPU seconds of the process, over wattkeeper's"
            )
            show("wattkeeper run", own, own)
            for name, module in PEERS.items():
                show(name, run_peer(python, module, path, gpus), own)
            if library is None:
                del os.environ["WATTKEEPER_TRACES"]
            else:
                os.environ["WATTKEEPER_TRACES"] = library


if __name__ == "__main__":
    main()
