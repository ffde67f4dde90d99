"""What each part of `frugal` is worth: the league of recorded pairs with one part left out.

Also what a prior is worth that is fitted to the other workloads, where each workload has the one
that it is left out of.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. Prints regret over Zeus's
(geometric mean) and its sum in runs of the optimum; under drift, the share of the last five
recurrences within 2 % of the optimum. Seeds are those of the arguments, 901 and 902 if there are
none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import fmean, linear_regression, stdev
from typing import Any
from unittest.mock import patch

from benchmarks.league_variants import choose_variants
from wattkeeper import scenarios
from wattkeeper.policies.configure import frugal
from wattkeeper.policies.learning import group, regression, watch
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.scenarios.analysis.learning.league import League, Pair, rank_variants
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles

GPU_TYPES = ("V100", "RTX6000", "A40", "P100")
ON_ITS_OWN = {"BEND_SD": 1e-3, "SLOPE_SD": 1e-3, "UNEVEN_SD": 0.5}
DRIFTS = ("{after: 20, per_octave: 0.4}", "{after: 20, per_octave: -0.4}")


@contextmanager
def _constants(module: Any, **values: float) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(patch.object(module, name, value))
        yield


@contextmanager
def _without_stops() -> Iterator[None]:
    configure = frugal.Frugal.configure

    def unbounded(self: frugal.Frugal, ctx: Context, start: Start) -> Configuration:
        return configure(self, ctx, start)._replace(cost_bound=math.inf)

    with patch.object(frugal.Frugal, "configure", unbounded):
        yield


def run(seeds: list[int], policy: str = "frugal", drift: str = "null") -> list[Pair]:
    """The pairs of all GPU types."""
    variants = choose_variants("default", "zeus", "frugal", "oracle")
    pairs: list[Pair] = []
    for gpu_type in GPU_TYPES:
        settings = [
            variants,
            f"variants.frugal.policies.configure={policy}",
            "sweep=null",
            f"cluster.gpu={gpu_type}",
            f"workload.drift={drift}",
        ]
        done = scenarios.load("bandit-league", settings, seeds=seeds).run()
        pairs += done.summary["league"]["pairs"]
    return pairs


def _priors(left_out: str) -> dict[str, float]:
    """Level and slope of ln(epochs), and deviation from that line, of the other workloads."""
    trace = store.find("zeus-nsdi23")
    lines, squares = [], []
    for profile in load_profiles(trace, "V100").profiles.values():
        if profile.workload == left_out:
            continue
        points = []
        for size, curve in profile.curves.items():
            reached = [epochs for epochs in curve.epochs if math.isfinite(epochs)]
            if reached:
                octaves = math.log2(size / profile.default_batch_size)
                points.append((octaves, math.log(fmean(reached))))
        x, y = zip(*points, strict=True)
        slope, level = linear_regression(x, y)
        lines.append((level, slope))
        squares.append(fmean((b - level - slope * a) ** 2 for a, b in points))
    levels, slopes = zip(*lines, strict=True)
    return {
        "LEVEL": fmean(levels),
        "LEVEL_SD": stdev(levels),
        "SLOPE": fmean(slopes),
        "SLOPE_SD": stdev(slopes),
        "BEND_SD": math.sqrt(fmean(squares)),
    }


def _fitted(seeds: list[int]) -> list[Pair]:
    """The pairs, each with the prior that is fitted to the other workloads."""
    pairs: list[Pair] = []
    for name in sorted({pair["workload"] for pair in run(seeds[:1])}):
        with _constants(regression, **_priors(name)):
            pairs += [pair for pair in run(seeds) if pair["workload"] == name]
    return pairs


def report(name: str, pairs: list[Pair]) -> None:
    """Print a line."""
    league: League = {"against": "zeus", "baseline": "default", "pairs": pairs}
    ratio = next(row[1] for row in rank_variants([("", league)]) if row[0] == "frugal")
    own = [pair["variants"]["frugal"] for pair in pairs]
    regret, near = sum(each["regret"] for each in own), fmean(each["near"] for each in own)
    print(f"{name:45} {ratio:6.2f} {regret:8.0f} {near:6.0%}", flush=True)


def main() -> None:
    seeds = [int(text) for text in sys.argv[1:]] or [901, 902]
    print(f"{'left out':45} {'regret':>6} {'sum':>8} {'near':>6}")
    report("nothing", run(seeds))
    report("slices of other batch sizes", run(seeds, "{kind: frugal, measure: own}"))
    with _without_stops():
        report("stopping trials", run(seeds))
    with _constants(group, ALLOWANCE=1e9, LASTING_ALLOWANCE=1e9):
        report("the spending cap", run(seeds))
    with _constants(regression, **ON_ITS_OWN):
        report("smoothness over batch sizes", run(seeds))
    report("nothing, epochs drift", [pair for drift in DRIFTS for pair in run(seeds, drift=drift)])
    report("nothing, the prior is fitted", _fitted(seeds))
    with _constants(watch, ALARM=1e9):
        changed = [pair for drift in DRIFTS for pair in run(seeds, drift=drift)]
        report("the watch for changes, epochs drift", changed)


if __name__ == "__main__":
    main()
