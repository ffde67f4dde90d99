"""Cost and regret of jobs by recurrence, as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.charts.columns import read_outcomes
from wattkeeper.sim.cluster_results.metrics import JobOutcomes

if TYPE_CHECKING:
    import pandas as pd

    from wattkeeper.scenarios.analysis.study import Study

KEYS: Final = ["variant", "seed", "workload", "recurrence"]


def select_workload(
    outcomes: list[tuple[RunColumns, JobOutcomes]], workload: str
) -> list[tuple[RunColumns, JobOutcomes]]:
    """The jobs of one workload in each run.

    Raises:
        InputError: If no run has one of that name.
    """
    known = sorted({name for _, jobs in outcomes for name in jobs.names["workload"]})
    if workload not in known:
        there = ", ".join(known) or "none"
        raise InputError(f"workload: found {workload!r}; the results have {there}")
    selected = []
    for run, jobs in outcomes:
        names = jobs.names["workload"]
        index = names.index(workload) if workload in names else len(names)
        selected.append((run, jobs.select(jobs.workload == index)))
    return selected


def tabulate_regret(study: Study) -> pd.DataFrame:
    """Jobs, cost and regret (J) of each recurrence of a workload's groups, by variant and seed."""
    import pandas as pd

    parts = []
    for run, jobs in read_outcomes(study):
        names = pd.Series([*jobs.names["workload"], None], dtype=object)  # -1: unknown
        part = pd.DataFrame(
            {
                "variant": run.variant,
                "seed": run.seed,
                "workload": names.iloc[jobs.workload].array,
                "recurrence": jobs.recurrence,
                "jobs": 1,
                "cost": jobs.cost,
                "regret": jobs.regret,
            }
        )
        parts.append(part)
    if not parts:
        return pd.DataFrame(columns=[*KEYS, "jobs", "cost", "regret"])
    grouped = pd.concat(parts).groupby(KEYS, sort=False, dropna=False)
    sums = grouped.agg({"jobs": "sum"}).join(grouped[["cost", "regret"]].sum(min_count=1))
    table = sums.reset_index()
    order = {name: place for place, name in enumerate(study.summary["variants"])}
    return table.sort_values(
        KEYS,
        key=lambda keys: keys.map(order) if keys.name == "variant" else keys,
        ignore_index=True,
    )
