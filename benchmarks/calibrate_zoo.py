"""Fits the simulator's model of warm starts to trainings of the scenario `zoo-digits`.

``python benchmarks/calibrate_zoo.py RESULTS [FILE]`` reads RESULTS.trainings and writes FILE, by
default sim/engine/warm_start.json. Every network was trained twice with a seed, from scratch and
from a parent with coverage c. The share of training saved is fitted as ``scale * c ** exponent`` by
least squares, weighted by the work from scratch, so that what counts is the sum; the change of
accuracy as ``shift * c``, with a deviation that all trainings share. Its error is what it says of
seeds that it was not fitted to: of each, and of three at a time, fitted to all others.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.live.search.training_log import read_trainings
from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.sim.results.folder import work_folder

EXPONENTS = np.arange(1, 1001) / 100
SHARED = Path(__file__).resolve().parents[1] / "sim/engine/warm_start.json"


class Pairs(NamedTuple):
    """Networks that had a parent, shapes (networks,), and the work of those that had none."""

    seed: npt.NDArray[np.int64]
    coverage: Floats
    scratch: Floats
    warm: Floats
    change: Floats
    alone: dict[int, float]


class Fit(NamedTuple):
    scale: float
    exponent: float

    def saved(self, coverage: Floats) -> Floats:
        return self.scale * coverage**self.exponent


def pairs(results: Path) -> Pairs:
    """Trainings with a zoo beside those of the same network and seed without.

    Raises:
        InputError: If there are none.
    """
    folder = work_folder(results, "trainings")
    found = [one for path in sorted(folder.glob("*.jsonl")) for one in read_trainings(path)]
    scratch = {(one.seed, one.model): one for one in found if one.variant == "scratch"}
    zoo = [one for one in found if one.variant == "zoo" and (one.seed, one.model) in scratch]
    rows = [
        (one.seed, one.coverage, base.work, one.work, one.accuracy - base.accuracy)
        for one in zoo
        if one.parent is not None and (base := scratch[one.seed, one.model])
    ]
    if not rows:
        raise InputError(f"{folder} has no trainings with and without a zoo")
    seed, coverage, work, warm, change = map(np.array, zip(*rows, strict=True))
    alone = dict.fromkeys({one.seed for one in zoo}, 0.0)
    for one in zoo:
        if one.parent is None:
            alone[one.seed] += one.work
    return Pairs(seed, coverage, work, warm, change, alone)


def fit(data: Pairs, rows: npt.NDArray[np.bool_]) -> Fit:
    """The best scale below 1 for each exponent, and the best of those."""
    coverage, work = data.coverage[rows], data.scratch[rows]
    share = 1 - data.warm[rows] / work
    best, found = math.inf, Fit(0.0, 1.0)
    for exponent in EXPONENTS:
        basis = coverage**exponent
        scale = float(np.clip((work * basis * share).sum() / (work * basis**2).sum(), 0, 0.999))
        error = float((work * (share - scale * basis) ** 2).sum())
        if error < best:
            best, found = error, Fit(scale, float(exponent))
    return found


def totals(data: Pairs, model: Fit, seeds: Sequence[int]) -> tuple[float, float]:
    """Means over seeds of the share of work that the model says is saved, and of the true one."""
    shares = []
    for seed in seeds:
        rows = data.seed == seed
        whole = float(data.scratch[rows].sum()) + data.alone[seed]
        said = float((data.scratch[rows] * model.saved(data.coverage[rows])).sum())
        shares.append((said / whole, float((data.scratch[rows] - data.warm[rows]).sum()) / whole))
    said, measured = np.mean(shares, axis=0).tolist()
    return said, measured


def held_out(data: Pairs, seeds: Sequence[int], fitted_to: Sequence[int]) -> dict[str, Any]:
    """What a model that is fitted to some seeds says of others."""
    model = fit(data, np.isin(data.seed, fitted_to))
    said, measured = totals(data, model, seeds)
    error = said / measured - 1
    print(f"held out {seeds}: predicted {said:.1%}, measured {measured:.1%}, {error:+.1%}")
    return (
        {"seeds": seeds, "fitted_to": fitted_to}
        | {"scale": model.scale, "exponent": model.exponent}
        | {"predicted_saved": said, "measured_saved": measured, "relative_error": error}
    )


def main(results: Path, out: Path) -> None:
    data = pairs(results)
    seeds = sorted(data.alone)
    alone = [[seed] for seed in seeds]
    threes = [seeds[at : at + 3] for at in range(0, len(seeds), 3)]
    left_out = [
        [held_out(data, part, others) for part in parts if (others := sorted({*seeds} - {*part}))]
        for parts in (alone, threes)
    ]
    model = fit(data, np.ones(len(data.seed), dtype=bool))
    share = 1 - data.warm / data.scratch
    shift = float((data.coverage * data.change).sum() / (data.coverage**2).sum())
    rest = data.change - shift * data.coverage
    residual = float(np.average((share - model.saved(data.coverage)) ** 2, weights=data.scratch))
    content = {
        "placeholder": False,
        "saved": {"scale": model.scale, "exponent": model.exponent},
        "accuracy": {"shift": shift, "noise": float(rest.std(ddof=1)) / 2**0.5},
        "fit": {
            "seeds": seeds,
            "trainings": len(data.seed),
            "mean_coverage": float(data.coverage.mean()),
            "accuracy_change": {
                "mean": float(data.change.mean()),
                "std": float(data.change.std(ddof=1)),
            },
        },
        "error": {
            "saved_rms_of_one_training": residual**0.5,
            "held_out_seeds": left_out[0],
            "held_out_threes": left_out[1],
        },
        "source": "Fitted by benchmarks/calibrate_zoo.py to runs of the scenario zoo-digits: small "
        "convolutional networks on scikit-learn's digits.",
    }
    out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"saved = {model.scale:.3f} * coverage ** {model.exponent:.2f}; {out}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else SHARED)
