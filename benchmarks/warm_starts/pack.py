"""Packs the trainings that `benchmarks.warm_starts.record` wrote into one file with its metadata.

``python -m benchmarks.warm_starts.pack FOLDER FILE.jsonl.gz``
"""

from __future__ import annotations

import gzip
import json
import platform
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

SHIPPED: Final = Path(__file__).with_name("trainings.jsonl.gz")

KEYS: Final = (
    *("network", "parent", "mutated_from", "parameters", "coverage", "kept"),
    *("epochs", "best_epoch", "curve", "validation", "test_accuracy", "cpu_s"),
)

Lines = dict[tuple[str, int], list[dict[str, Any]]]
"""Trainings by family and seed."""


def read_folder(folder: Path) -> Lines:
    """What `record` wrote."""
    runs: Lines = {}
    for path in sorted(folder.glob("*.jsonl")):
        family, _, seed = path.stem.rpartition("-")
        text = path.read_text(encoding="utf-8")
        runs[family, int(seed)] = [json.loads(line) for line in text.splitlines()]
    return runs


def read_packed(path: Path) -> Lines:
    """What `pack` wrote."""
    runs: Lines = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        next(file)
        for line in map(json.loads, file):
            runs[line.pop("family"), line.pop("seed")].append(line)
    return runs


def describe() -> dict[str, Any]:
    """Where and with what the trainings were done."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "recorded": datetime.now(UTC).date().isoformat(),
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "rule": "Adam 0.001, batches of 64, patience 5, at most 100 epochs; one thread each",
    }


def pack(runs: Lines) -> Iterator[str]:
    """The lines of the packed file."""
    yield json.dumps(describe())
    for (family, seed), lines in runs.items():
        for line in lines:
            yield json.dumps({"family": family, "seed": seed, **{key: line[key] for key in KEYS}})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text = "".join(f"{line}\n" for line in pack(read_folder(Path(sys.argv[1]))))
    Path(sys.argv[2]).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
