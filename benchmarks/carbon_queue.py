"""What `select: carbon-aware` saves: jobs of a log that wait for cleaner hours.

Prints by series, slack, size of the cluster and forecast, in per cent of the plain queue: carbon
saved by all and by short jobs, and time added (mean time from submission to end; makespan); the
share of late jobs (the plain queue's in brackets), and CPU seconds of the run; and the bounds for
jobs that never wait for GPUs: the best start of each, and its best hours where pauses cost nothing.

    python -m benchmarks.carbon_queue SHARED [--jobs 10000] [--slack 0.25 1] [--gpus 20000 600]

SHARED holds `data/carbon` and `data/philly`.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from contextlib import redirect_stdout
from datetime import date
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import yaml

from tests.support.carbon import read_year
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.select.carbon_aware import Outlook, best_start
from wattkeeper.scenarios.cli.main import main as wattkeeper

SLOT_S = 900.0
SHORT_S = 86_400.0
"""Short jobs run up to a day."""


def scenario(country: str, slack: float, gpus: int, kind: str, given: argparse.Namespace) -> str:
    """The scenario of a run as YAML."""
    plain = {"kind": given.queue}
    if given.queue == "easy-backfill":
        plain["estimates"] = "perfect"
    series = str(given.shared / f"data/carbon/{country}_2022.parquet")
    return yaml.safe_dump(
        {
            "name": "carbon-queue",
            "cluster": {"gpu": "GPU", "gpus": gpus, "idle_power_w": 0, "busy_power_w": 250},
            "workload": {
                "kind": "trace",
                "trace": "philly",
                "gpu_types": "ignore",
                "slack": slack,
                "unusable": "drop",
            },
            "electricity": {
                "carbon": {
                    "file": series,
                    "column": "carbon_intensity",
                    "unit": "g/kWh",
                    "kind": "average",
                    "repeat": "year",
                    "zone": "UTC",
                },
                "origin": f"2022-{given.month:02}-01T00:00:00+00:00",
            },
            "policies": {"place": "best-fit"},
            "signals": {"carbon": {"forecast": kind}},
            "variants": {
                "plain": {"policies": {"select": plain}},
                "held": {
                    "policies": {
                        "select": {
                            "kind": "carbon-aware",
                            "estimates": "perfect",
                            "least_gain": given.least_gain,
                            "queue": given.queue,
                        }
                    }
                },
            },
            "baseline": "plain",
        }
    )


def bounds(jobs: pd.DataFrame, values: Floats, first_day: int) -> tuple[float, float]:
    """Carbon of the best start, and of the best hours, over that of a start at once."""
    at_once, started, paused = 0.0, 0.0, 0.0
    day = round(86_400 / SLOT_S)
    columns = (jobs[name].tolist() for name in ("submit_time_s", "deadline_s", "time_s", "gpus"))
    for submit_s, deadline_s, run_s, gpus in zip(*columns, strict=True):
        if not run_s > 0:
            continue
        first = math.floor(submit_s / SLOT_S)
        until_s = (first + 1) * SLOT_S
        slots = 1 + max(0, math.ceil((deadline_s - until_s) / SLOT_S))
        rates = values[(first_day * day + first + np.arange(slots)) % (364 * day)]
        outlook = Outlook.of(submit_s, until_s, SLOT_S, rates)
        at_once += gpus * float(outlook.cost(np.array([submit_s]), run_s)[0])
        started += gpus * best_start(outlook, max(submit_s, deadline_s - run_s), run_s)[1]
        lengths = np.diff(np.minimum(outlook.time_s, deadline_s))
        order = np.argsort(rates, kind="stable")
        used = np.diff(np.minimum(np.append(0.0, np.cumsum(lengths[order])), run_s))
        paused += gpus * float(used @ rates[order])
    return 100 * (1 - started / at_once), 100 * (1 - paused / at_once)


def run_command(*arguments: str) -> None:
    """Run a command without its output.

    Raises:
        RuntimeError: If it fails.
    """
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            wattkeeper(list(arguments))
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{arguments} ended with {end.code}") from None


def measure(folder: Path, text: str) -> tuple[str, pd.DataFrame]:
    """A row of the table, and the jobs of the plain queue."""
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    since_s = process_time()
    run_command("run", str(folder / "scenario.yaml"), "--out", str(folder / "out"))
    spent_s = process_time() - since_s
    jobs = pd.read_parquet(folder / "out/jobs.parquet")
    jobs["jct_s"] = jobs["finish_time_s"] - jobs["submit_time_s"]
    jobs["late"] = jobs["finish_time_s"] > jobs["deadline_s"] + 1e-3
    plain, held = jobs[jobs["variant"] == "plain"], jobs[jobs["variant"] == "held"]
    saved = [
        100 * (1 - each["carbon_g"].sum() / other["carbon_g"].sum())
        for each, other in (
            (held, plain),
            (held[held["time_s"] <= SHORT_S], plain[plain["time_s"] <= SHORT_S]),
        )
    ]
    added = 100 * (held["jct_s"].mean() / plain["jct_s"].mean() - 1)
    span = 100 * (held["finish_time_s"].max() / plain["finish_time_s"].max() - 1)
    late = f"{100 * held['late'].mean():.2f} % ({100 * plain['late'].mean():.2f} %)"
    return (
        f"{saved[0]:6.1f} {saved[1]:6.1f} {added:+7.1f} {span:+9.1f}  {late:20} {spent_s:6.1f}",
        plain,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--slack", type=float, nargs="+", default=[0.05, 0.25, 1.0, 4.0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[20_000, 256])
    parser.add_argument("--forecast", nargs="+", default=["history", "noisy", "perfect"])
    parser.add_argument("--least-gain", type=float, default=0.0)
    parser.add_argument("--queue", default="fjf")
    parser.add_argument("--month", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (given.shared / "data/philly/philly.csv").open(encoding="utf-8") as log:
            head = [line for line, _ in zip(log, range(given.jobs + 1), strict=False)]
        (folder / "log.csv").write_text("".join(head), encoding="utf-8")
        os.environ["WATTKEEPER_TRACES"] = name
        run_command("traces", "import", "philly-csv", str(folder / "log.csv"), "--name", "philly")
        print(f"{'series, slack, GPUs, forecast':32}  saved  short   added  makespan  late  CPU s")
        for country, slack, gpus in product(("de", "nl"), given.slack, given.gpus):
            values = read_year(given.shared, country)
            for kind in given.forecast:
                text = scenario(country, slack, gpus, kind, given)
                row, plain = measure(folder, text)
                print(f"{f'{country}, {slack:.0%}, {gpus}, {kind}':32} {row}", flush=True)
            if gpus == given.gpus[0]:
                best, paused = bounds(
                    plain, values, date(2022, given.month, 1).timetuple().tm_yday - 1
                )
                print(f"{'':8}best start {best:.1f}, best hours {paused:.1f}", flush=True)


if __name__ == "__main__":
    main()
