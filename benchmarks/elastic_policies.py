"""Goodput of `adaptive` over that of the best fixed policy of elastic jobs, in hindsight.

Five models that Oobleck (SOSP '23) measured, under periodic losses, two recorded traces of spot
nodes and random losses. The fixed policies are Oobleck, Varuna every ten steps and at Daly's
interval, and in-memory checkpoints, each of which takes up nodes at a loss, at once, or if it pays;
with `--notice` also checkpoints on notice. Means over seeds are compared.

`python benchmarks/elastic_policies.py RATES SPOT` needs the CSV file of rates by number of nodes,
and the folder with the traces of node events; `--held-out` runs conditions on which nothing was
chosen, `--notice` announces each loss 120 s before, `--mechanisms` restricts what may be used, also
of the fixed policies.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wattkeeper import scenarios

NODES = 30
BOOT_S = 45
NOTICE_S = 120
DAY_S = 86_400

Json = dict[str, Any]


class Model(NamedTuple):
    """A model as the published replays of Oobleck have it; times in s."""

    name: str
    rates: str
    batch: int
    reconfigure_s: float
    restart_s: float | dict[int, float]
    checkpoint_s: float


BERT_S = {n: 71.3 + 3.7 * (n - 15) for n in range(15, 26)}
MODELS = (
    Model(
        "BERT-large",
        "bertLarge",
        8192,
        2,
        BERT_S | {26: 112.0, 27: 49.1, 28: 67.6, 29: 67.6, 30: 71.3},
        15.8,
    ),
    Model("GPT-2", "gpt_2_ours", 1024, 2, 83, 11.5),
    Model("GPT-3 medium", "gpt_3m", 819, 3, 78.7, 11.2),
    Model("GPT-3 2.7B", "gpt_3_2_7b", 512, 6, 515, 50),
    Model("GPT-3 6.7B", "gpt_3_6_7b", 1024, 10, 701, 120),
)


class Condition(NamedTuple):
    """Losses: those of a trace, or drawn ones; with the time that is simulated, s, and seeds."""

    name: str
    trace: str = ""
    drawn: Json | None = None
    until_s: float = math.nan
    seeds: tuple[int, ...] = (0,)


def drawn(name: str, mean_s: float, days: float, first: int, **more: Any) -> Condition:
    """Random losses, one in a mean time (s) while all nodes are up; they return in 1 h (median)."""
    rate = DAY_S / mean_s / NODES * 1000
    return Condition(
        name, drawn={"rate": rate} | more, until_s=days * DAY_S, seeds=(first, first + 1, first + 2)
    )


CONDITIONS = (
    *(Condition(every, f"{every}.csv") for every in ("6h", "3h", "1h", "30m", "10m")),
    Condition("GCP", "scaled/scale_gcp-trace.csv"),
    Condition("P3", "scaled/scale_p3-trace.csv"),
    drawn("random 1h", 3600, 2.5, 0),
    drawn("random 10m", 600, 1, 0),
)
RACKS = {"share": 0.3, "nodes": 4, "rack": 6}
HELD_OUT = (
    Condition("5m", "5m.csv"),
    drawn("random 5h", 18_000, 10, 10),
    drawn("random 30m", 1800, 2, 10),
    drawn("Weibull 1h", 3600, 4, 20, shape=0.6, together=RACKS),
    drawn("Weibull 15m", 900, 2, 20, shape=0.6, together=RACKS, away_s=1200),
    drawn("long absence", 3600, 4, 30, away_s=14_400),
)


def fixed(mechanisms: Sequence[str], has_notice: bool) -> dict[str, Json]:
    """The fixed policies, by name."""
    kinds: dict[str, Json] = {
        "oobleck": {"kind": "oobleck"},
        "in-memory": {"kind": "in-memory"},
        "varuna": {"kind": "varuna"},
        "varuna at Daly's": {"kind": "varuna", "every_steps": "daly"},
    }
    if has_notice:
        kinds["on-notice"] = {"kind": "on-notice"}
    return {
        f"{name}, join {join}": kind | {"join": join}
        for name, kind in kinds.items()
        for join in ("loss", "now", "pays")
        if not mechanisms or kind["kind"] in mechanisms
    }


def scenario(model: Model, rates: Path, spot: Path, condition: Condition, notices: bool) -> Json:
    """The scenario of a model and a condition, without variants."""
    job = {
        "name": "job",
        "model": model.rates,
        "batch": model.batch,
        "least_nodes": 12,
        "most_nodes": NODES,
        "checkpoint_s": model.checkpoint_s,
        "restart_s": model.restart_s,
        "reconfigure_s": model.reconfigure_s,
    }
    losses: Json = {"events": dict(condition.drawn or {}), "boot_s": BOOT_S}
    until_s = condition.until_s
    if condition.trace:
        lines = (spot / condition.trace).read_text().split()
        until_s = max(int(line.split(",")[0]) for line in lines) / 1000
        losses["events"] = library_name(condition)
        job["submit_s"] = BOOT_S
    if notices and condition.trace:
        losses["notice_s"] = NOTICE_S
    elif notices:
        losses["events"] |= {"notice": {"share": 1.0, "length_s": NOTICE_S}}
    return {
        "name": "elastic",
        "cluster": {
            "gpu": "V100",
            "gpus": NODES,
            "gpus_per_node": 1,
            "idle_power_w": 50,
            "busy_power_w": 250,
            "losses": losses,
        },
        "workload": {
            "kind": "elastic",
            "rates": str(rates),
            "beyond_rates": "nearest",
            "until_s": until_s,
            "jobs": [job],
        },
        "seeds": list(condition.seeds),
    }


def library_name(condition: Condition) -> str:
    """The name of the trace of a condition in the library."""
    return "t-" + Path(condition.trace).stem.replace("_", "-")


def goodput(base: Json, policies: dict[str, Json], folder: Path) -> dict[str, float]:
    """Samples a second with each policy, mean over seeds."""
    path = folder / "elastic.yaml"
    variants = {f"v{n}": {"policies": {"replan": each}} for n, each in enumerate(policies.values())}
    path.write_text(json.dumps(base | {"variants": variants, "baseline": "v0"}))
    metrics = scenarios.load(str(path)).run().metrics
    means = metrics[metrics.metric == "goodput"].groupby("variant").value.mean()
    return {name: float(means[f"v{n}"]) for n, name in enumerate(policies)}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("rates", type=Path)
    parser.add_argument("spot", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--notice", action="store_true")
    parser.add_argument("--mechanisms", nargs="+", default=[])
    args = parser.parse_args()
    own: Json = {"kind": "adaptive"}
    if args.mechanisms:
        own["mechanisms"] = args.mechanisms
    policies = fixed(args.mechanisms, args.notice) | {"adaptive": own}
    ratios = []
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        os.environ["WATTKEEPER_TRACES"] = str(folder / "traces")
        for condition in HELD_OUT if args.held_out else CONDITIONS:
            if condition.trace:
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "wattkeeper.scenarios",
                        "traces",
                        "import",
                        "node-events",
                        str(args.spot / condition.trace),
                        "--name",
                        library_name(condition),
                    ],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
            for model in MODELS:
                base = scenario(model, args.rates.resolve(), args.spot, condition, args.notice)
                found = goodput(base, policies, folder)
                value = found.pop("adaptive")
                best = max(found, key=found.__getitem__)
                ratio = value / found[best] if found[best] else math.nan
                if not math.isnan(ratio):
                    ratios.append(ratio)
                print(
                    f"{condition.name:14} {model.name:14} {ratio:7.4f}  of {found[best]:8.3f} "
                    f"({best})",
                    flush=True,
                )
    mean = math.fsum(ratios) / len(ratios)
    print(f"{len(ratios)} of them: mean {mean:.4f}, least {min(ratios):.4f}")


if __name__ == "__main__":
    main()
