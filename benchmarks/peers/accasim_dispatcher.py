"""AccaSim: its first in first out with first fit, on one node that has all GPUs as cores.

It was written for Python 3.9 and older: a name that has moved since is put where it looks for it.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.peers.work import Work, answer


def simulate(work: Work) -> Sequence[float]:
    """Start times of all jobs, s."""
    vars(collections)["Mapping"] = collections.abc.Mapping
    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import FirstInFirstOut
    from accasim.base.simulator_class import Simulator

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        jobs, system = root / "jobs.swf", root / "system.json"
        with jobs.open("w", encoding="utf-8") as file:
            for number, row in enumerate(zip(*work[1:], strict=True), 1):
                submit_s, run_s, gpus = row
                file.write(
                    f"{number} {submit_s} -1 {run_s} {gpus} -1 -1 {gpus} {run_s} 1"
                    " 1 1 1 1 1 1 -1 -1\n"
                )
        groups = {"node": {"core": work.gpus, "mem": 1_000_000_000}}
        system.write_text(json.dumps({"groups": groups, "resources": {"node": 1}}))
        simulator = Simulator(
            str(jobs),
            str(system),
            FirstInFirstOut(FirstFit()),
            RESULTS_FOLDER_PATH=str(root),
            statistics_output=False,
            show_statistics=False,
        )
        simulator.start_simulation()
        (made,) = root.rglob("sched-*")
        return _read_starts(made, work)


def _read_starts(path: Path, work: Work) -> Sequence[float]:
    """Start times by the plan that AccaSim wrote: a row a job, `number;user;submit__...#__start;`.

    Its times are of the local calendar, so only the time between two of them is read.
    """
    starts = [0.0] * len(work.submit_s)
    for line in path.read_text(encoding="utf-8").splitlines():
        number, _, submitted = line.split(";")[:3]
        start = line.partition("#__")[2].partition(";")[0]
        waited = _parse(start) - _parse(submitted.partition("__")[0])
        job = int(number) - 1
        starts[job] = work.submit_s[job] + waited.total_seconds()
    return starts


def _parse(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    answer(simulate)
