"""Made-up results in the layout of MLPerf Training with power."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

START_MS = 1_700_000_000_000


def event(key: str, time_s: float, value: object = None, **metadata: object) -> str:
    """A line of a log, some seconds after `START_MS`."""
    content = {"namespace": "", "time_ms": int(START_MS + 1000 * time_s), "key": key}
    return ":::MLLOG " + json.dumps(content | {"value": value, "metadata": metadata})


def log(
    time_s: float = 100.0,
    values: tuple[float, ...] = (0.5, 0.7, 0.73),
    seed: int = 1,
    status: str = "success",
    batch_size: int = 64,
) -> str:
    """The log of a run with evaluations at equal distances, and with lines that say nothing."""
    lines = ["+ echo 'no line of the log'", event("seed", -5, seed)]
    lines += ["0: " + event("global_batch_size", -4, batch_size)]
    lines += [f"{rank}: " + event("run_start", 0.001 * rank) for rank in (1, 0)]
    for number, value in enumerate(values, 1):
        at_s = time_s * number / len(values) - 0.5
        lines += [
            f"{rank}: {event('eval_accuracy', at_s, value, epoch_num=number)}" for rank in "01"
        ]
    lines += ["0: " + event("run_stop", time_s - 1), event("run_stop", time_s, status=status)]
    return "\n".join([*lines, "done"]) + "\n"


def readings(power_w: float, until_s: float = 130.0, every_s: float = 1.0) -> str:
    """Readings of a node from before a run of 100 s until after it."""
    count = int((until_s + 10) / every_s) + 1
    return "".join(event("power_reading", i * every_s - 10, power_w) + "\n" for i in range(count))


def system(nodes: int = 1, model: str = "NVIDIA H100-SXM5-80GB", **more: Any) -> str:
    """The description of a system with eight GPUs a node."""
    stated = {"number_of_nodes": str(nodes), "accelerators_per_node": "8"}
    return json.dumps(stated | {"accelerator_model_name": model, "cooling": "air"} | more)


def write_run(
    root: Path,
    name: str,
    text: str,
    power: dict[str, str],
    benchmark: str = "bert",
    place: str = "acme/results/box",
) -> Path:
    """Write a run and its power files; its log."""
    folder = root / place / benchmark
    meters = folder / "power" / name
    meters.mkdir(parents=True, exist_ok=True)
    for file, content in power.items():
        (meters / f"{file}.txt").write_text(content)
    path = folder / f"{name}.txt"
    path.write_text(text)
    return path


def write_system(root: Path, text: str, name: str = "box", submitter: str = "acme") -> Path:
    """Write the description of a system."""
    path = root / submitter / "systems" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_results(root: Path) -> Path:
    """Two runs of a system with one node; the folder."""
    write_system(root, system())
    write_run(root, "result_0", log(), {"node_0": readings(1000.0)})
    write_run(root, "result_1", log(120.0, seed=2), {"node_0": readings(1100.0)})
    return root
