"""How often a bandit is back at the optimum within ten recurrences after an abrupt change.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. After 20 or 60 recurrences, a
batch size of b needs (b / default) ** 0.4 or ** -0.4 times as many epochs. Of the pairs of workload
and GPU type whose best configuration before costs 10 % more than the best one afterwards, and of
seeds: the share in which most of the recurrences 11 to 15 after the change have a configuration
within 5 % of the optimum. The last column leaves out pairs whose best batch size before is so near
to the default that its own epochs change by less than 10 %. Seeds are those of the arguments, 901
to 908 if there are none.
"""

from __future__ import annotations

import math
import sys
from statistics import fmean
from typing import NamedTuple

from benchmarks.league_variants import choose_variants
from wattkeeper import scenarios
from wattkeeper.policies.profile import Drift, Objective, Profile, expectations
from wattkeeper.traces.library import store
from wattkeeper.traces.profiles import load_profiles

GPU_TYPES = ("V100", "RTX6000", "A40", "P100")
PER_OCTAVE = (0.4, -0.4)
ETA = 0.5

Configurations = set[tuple[int, float]]


class Change(NamedTuple):
    """What a change does to a workload.

    Attributes:
        near: Configurations within 5 % of the optimum afterwards.
        is_moved: Whether the best one before costs 10 % more afterwards.
        is_visible: Whether its own epochs change by 10 %.
    """

    near: Configurations
    is_moved: bool
    is_visible: bool


def change_of(profile: Profile, drift: Drift) -> Change:
    """What a drift does to the configurations of a profile."""
    drifting = profile._replace(drift=drift)
    before, after = (
        {(each.batch_size, each.power_limit_w): each.cost
         for each in expectations(drifting.after_drift(share), Objective(ETA))}
        for share in (0, 1)
    )  # fmt: skip
    best, least = min(before, key=before.__getitem__), min(after.values())
    octaves = math.log2(best[0] / profile.default_batch_size)
    return Change(
        {key for key, cost in after.items() if cost <= 1.05 * least},
        after.get(best, math.inf) >= 1.1 * least,
        abs(octaves * drift.per_octave) * math.log(2) >= math.log(1.1),
    )


def measure(after: int, seeds: list[int]) -> dict[str, list[tuple[bool, bool]]]:
    """By variant: whether each pair and seed is back, and whether the change is visible."""
    found: dict[str, list[tuple[bool, bool]]] = {"zeus": [], "frugal": []}
    for gpu_type in GPU_TYPES:
        profiles = load_profiles(store.find("zeus-nsdi23"), gpu_type).profiles.values()
        for per_octave in PER_OCTAVE:
            settings = [
                choose_variants("zeus", "frugal"), "sweep=null", "league=null", "baseline=zeus",
                f"cluster.gpu={gpu_type}", f"workload.recurrences={after + 15}",
                f"workload.drift={{after: {after}, per_octave: {per_octave}}}",
            ]  # fmt: skip
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
    print("change after  policy  back within 10  where it is visible")
    for after in (20, 60):
        for variant, rows in measure(after, seeds).items():
            visible = fmean(is_back for is_back, is_visible in rows if is_visible)
            print(f"{after:12}  {variant:6}  {fmean(is_back for is_back, _ in rows):14.0%}  "
                  f"{visible:19.0%}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
