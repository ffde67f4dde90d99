"""How much of its savings a bandit keeps where submissions of a group overlap.

Needs the profiles of Zeus: `wattkeeper traces fetch zeus-nsdi23`. For each workload on V100, eta
0.5: energy saved against the default, all recurrences and learning included, over what is saved
where each recurrence waits for the one before. From one submission to the next, 0.5, 0.3, 0.2 and
0.1 of the default's expected run time pass; `overlapping` is the share that is submitted while an
earlier one of its group is under way. Seeds are those of the arguments, 901 to 908 if there are
none.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.league_variants import choose_variants
from wattkeeper import scenarios

if TYPE_CHECKING:
    import pandas as pd

EVERY_RUNS = (0.5, 0.3, 0.2, 0.1)
POLICIES = ("zeus", "frugal")


def run(every_runs: float | None, seeds: list[int]) -> pd.DataFrame:
    """The jobs of all variants; `every_runs`: None has each recurrence wait for the one before."""
    interval = "null" if every_runs is None else str(every_runs)
    settings = [
        choose_variants("default", *POLICIES),
        "sweep=null",
        "league=null",
        "cluster.gpu=V100",
        "objective.eta=0.5",
        f"workload.every_runs={interval}",
    ]
    return scenarios.load("bandit-league", settings, seeds=seeds).run().jobs


def saved(jobs: pd.DataFrame) -> dict[str, pd.Series]:
    """Energy that each policy saves against the default, J, by workload."""
    energy = jobs.groupby(["variant", "workload"]).energy_j.sum()
    return {policy: energy["default"] - energy[policy] for policy in POLICIES}


def overlapping(jobs: pd.DataFrame, policy: str) -> float:
    """Share of jobs that are submitted while an earlier one of their group is under way."""
    own = jobs[jobs.variant == policy].groupby(["seed", "group_id", "recurrence"])
    spans = own.agg(submitted=("submit_time_s", "min"), finished=("finish_time_s", "max"))
    latest = spans.groupby(["seed", "group_id"]).finished.transform(
        lambda end: end.cummax().shift()
    )
    return float((spans.submitted < latest).mean())


def main() -> None:
    seeds = [int(text) for text in sys.argv[1:]] or list(range(901, 909))
    most = saved(run(None, seeds))
    print("every_runs  policy  overlapping  kept by workload")
    for every_runs in EVERY_RUNS:
        jobs = run(every_runs, seeds)
        for policy, energy_j in saved(jobs).items():
            kept = energy_j / most[policy]
            shares = "  ".join(f"{name} {share:.0%}" for name, share in kept.items())
            print(
                f"{every_runs:10}  {policy:6}  {overlapping(jobs, policy):11.0%}  {shares}",
                flush=True,
            )


if __name__ == "__main__":
    main()
