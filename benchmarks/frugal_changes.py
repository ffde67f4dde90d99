"""How often a bandit is back at the optimum within ten recurrences after an abrupt change.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. Two kinds of change come after 20
or 60 recurrences. `all`: a batch size of b needs (b / default) ** 0.4 or ** -0.4 times as many
epochs. `best`: the best batch size before needs 1.5 times as many, the others as many as before.
Of the pairs of workload and GPU type whose best configuration before costs 10 % more than the best
one afterwards, and of seeds: the share in which most of the recurrences 11 to 15 after the change
have a configuration within 5 % of the optimum. The last column leaves out pairs whose best batch
size before is so near to the default that its own epochs change by less than 10 %. `window` is Zeus
with the last ten results of a batch size alone. Seeds are those of the arguments, 901 to 908 if
there are none.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from statistics import fmean
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.league_variants import choose_variants
from wattkeeper import scenarios
from wattkeeper.policies.profile import Drift, Objective, Profile, expectations
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles

GPU_TYPES = ("V100", "RTX6000", "A40", "P100")
PER_OCTAVE = {"all": (0.4, -0.4), "best": (math.log2(1.5),)}
ETA = 0.5
WINDOW = {"policies": {"configure": {"kind": "zeus", "beta": 2, "window": 10}, "tune": "zeus-jit"}}
VARIANTS = choose_variants("zeus", "frugal")[:-1] + f', "window": {json.dumps(WINDOW)}}}'

Costs = dict[tuple[int, float], float]


class Change(NamedTuple):
    """What a change does to a workload.

    Attributes:
        near: Configurations within 5 % of the optimum afterwards.
        is_moved: Whether the best one before costs 10 % more afterwards.
        is_visible: Whether its own epochs change by 10 %.
    """

    near: set[tuple[int, float]]
    is_moved: bool
    is_visible: bool


def costs_of(profile: Profile) -> Costs:
    """Expected cost of a run, J, by batch size and power limit."""
    each = expectations(profile, Objective(ETA))
    return {(found.batch_size, found.power_limit_w): found.cost for found in each}


@cache
def _best_size(trace: str, gpu_type: str, workload: str) -> int:
    costs = costs_of(load_profiles(store.find(trace), gpu_type).profiles[workload])
    return min(costs, key=costs.__getitem__)[0]


def _octaves(profile: Profile, batch_size: int) -> float:
    """1 for the best batch size before the change, which alone changes."""
    best = _best_size("zeus-nsdi23", profile.gpu_type, profile.workload)
    return float(batch_size == best)


def _run_epochs(self: Profile, batch_size: int, run: int, recurrence: int) -> float:
    epochs = self.curves[batch_size].epochs[run]
    if self.drift is None:
        return epochs
    return self.drift.change(epochs, _octaves(self, batch_size), self.drift.step(recurrence))


def _after_drift(self: Profile, step: int) -> Profile:
    if self.drift is None:
        return self
    curves = {}
    for size, curve in self.curves.items():
        changed = [self.drift.change(each, _octaves(self, size), step) for each in curve.epochs]
        curves[size] = curve._replace(epochs=tuple(changed))
    return self._replace(curves=curves, drift=None)


@contextmanager
def only_the_best() -> Iterator[None]:
    """Let a drift change the epochs of the best batch size alone, as those of one octave."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(Profile, "run_epochs", _run_epochs))
        stack.enter_context(patch.object(Profile, "after_drift", _after_drift))
        yield


def change_of(profile: Profile, drift: Drift) -> Change:
    """What a drift does to the configurations of a profile."""
    drifting = profile._replace(drift=drift)
    before, after = (costs_of(drifting.after_drift(step)) for step in (0, 1))
    best, least = min(before, key=before.__getitem__), min(after.values())
    epochs = [
        drifting.after_drift(step).curves[best[0]].expected_epochs(profile.max_epochs)
        for step in (0, 1)
    ]
    return Change(
        {key for key, cost in after.items() if cost <= 1.05 * least},
        after.get(best, math.inf) >= 1.1 * least,
        not 1 / 1.1 < epochs[1] / epochs[0] < 1.1,
    )


def measure(kind: str, after: int, seeds: list[int]) -> dict[str, list[tuple[bool, bool]]]:
    """By variant: whether each pair and seed is back, and whether the change is visible."""
    found: dict[str, list[tuple[bool, bool]]] = {"zeus": [], "window": [], "frugal": []}
    for gpu_type in GPU_TYPES:
        profiles = load_profiles(store.find("zeus-nsdi23"), gpu_type).profiles.values()
        for per_octave in PER_OCTAVE[kind]:
            settings = [
                VARIANTS,
                "sweep=null",
                "league=null",
                "baseline=zeus",
                f"cluster.gpu={gpu_type}",
                f"workload.recurrences={after + 15}",
                f"workload.drift={{after: {after}, per_octave: {per_octave}}}",
            ]
            jobs = scenarios.load("bandit-league", settings, seeds=seeds).run().jobs
            jobs = jobs[(jobs.attempt == 1) & (jobs.recurrence > after + 10)]
            for profile in profiles:
                change = change_of(profile, Drift(after, per_octave, 1))
                if not change.is_moved:
                    continue
                own = jobs[jobs.workload == profile.workload]
                for (variant, _), rows in own.groupby(["variant", "seed"]):
                    chosen = zip(rows.batch_size, rows.power_limit_w, strict=True)
                    is_back = fmean(each in change.near for each in chosen) > 0.5
                    found[str(variant)].append((is_back, change.is_visible))
    return found


def main() -> None:
    seeds = [int(text) for text in sys.argv[1:]] or list(range(901, 909))
    print("change of  after  policy  back within 10  where it is visible")
    for kind in PER_OCTAVE:
        for after in (20, 60):
            with only_the_best() if kind == "best" else nullcontext():
                rows_of = measure(kind, after, seeds)
            for variant, rows in rows_of.items():
                visible = fmean(is_back for is_back, is_visible in rows if is_visible)
                print(
                    f"{kind:9}  {after:5}  {variant:6}  "
                    f"{fmean(is_back for is_back, _ in rows):14.0%}  {visible:19.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
