"""The sums of regrets under noise, by half of the pairs of the league.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. Eta 0.5; epochs of a run are
lognormal, with a deviation of 0.1, 0.3 or 0.5. For each seed, the regrets of all recurrences of a
pair of workload and GPU type, in runs of the optimum, are added up: over all pairs, and over those
of two GPU types each. Prints the mean, the median and the least over seeds: a few seeds in which
Zeus leaves a good batch size for good make its mean. Seeds are those of the arguments, 901 to 908
if there are none.
"""

from __future__ import annotations

import sys
from statistics import fmean, median

from benchmarks.league_variants import choose_variants
from wattkeeper import scenarios

DEVIATIONS = (0.1, 0.3, 0.5)
HALVES = (("V100", "RTX6000"), ("A40", "P100"))
POLICIES = ("zeus", "frugal")

Sums = dict[str, float]


def add_up(gpu_type: str, deviation: float, seed: int) -> Sums:
    """The sum of the regrets of each policy on a GPU type, runs of the optimum."""
    settings = [
        choose_variants("default", *POLICIES, "oracle"),
        "sweep=null",
        f"cluster.gpu={gpu_type}",
        "objective.eta=0.5",
        f"workload.epochs_sd={deviation}",
    ]
    pairs = scenarios.load("bandit-league", settings, seeds=[seed]).run().summary["league"]["pairs"]
    return {name: sum(pair["variants"][name]["regret"] for pair in pairs) for name in POLICIES}


def main() -> None:
    seeds = [int(text) for text in sys.argv[1:]] or list(range(901, 909))
    print("noise  policy  pairs of                       mean   median    least")
    for deviation in DEVIATIONS:
        by_type = {
            gpu_type: [add_up(gpu_type, deviation, seed) for seed in seeds]
            for half in HALVES
            for gpu_type in half
        }
        for policy in POLICIES:
            for types in (sum(HALVES, ()), *HALVES):
                sums = [
                    sum(by_type[gpu_type][index][policy] for gpu_type in types)
                    for index in range(len(seeds))
                ]
                figures = f"{fmean(sums):7.1f}  {median(sums):7.1f}  {min(sums):7.1f}"
                print(f"{deviation:5}  {policy:6}  {', '.join(types):26}  {figures}", flush=True)


if __name__ == "__main__":
    main()
