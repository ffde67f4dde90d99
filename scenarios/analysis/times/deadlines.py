"""What jobs with deadlines save, job by job, and how much they could save at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.accounting import CARBON, COST
from wattkeeper.sim.cluster_results.metrics import ROUNDING
from wattkeeper.sim.results.run_result import RunResult

WEIGHTS: Final = {"carbon": CARBON, "price": COST, "energy": "energy_j"}
"""The column of jobs by what is compared."""

WORDS: Final = {"carbon": "emissions", "price": "cost of electricity", "energy": "energy"}

SAME: Final = 1e-9
"""Share of the baseline's amount up to which a job neither saves nor loses."""

Amounts = dict[tuple[int, str], float]
"""An amount by seed and job."""


class VariantSavings(TypedDict):
    """What the jobs of a variant save; shares of what the same jobs use under the baseline.

    Attributes:
        late: Number of jobs that ended after their deadline, of all that have one.
        allowed: Mean ratio of the time from submission to deadline to the time that a job trains;
            absent in results of earlier versions.
        saved: Mean share saved against the scenario's baseline.
        together: Share that all of them save together; absent in results of earlier versions.
        than: The variant's own baseline; absent where it is the variant itself.
        more: Mean difference of the shares saved by the variant and its own baseline.
        losing: Share of jobs that save less than under the variant's own baseline.
        worst: The largest of these differences, 0 if no job loses.
    """

    late: int
    allowed: NotRequired[float]
    saved: float
    together: NotRequired[float]
    than: NotRequired[str]
    more: NotRequired[float]
    losing: NotRequired[float]
    worst: NotRequired[float]


class DeadlineSavings(TypedDict):
    """Jobs with deadlines, compared one by one over all seeds.

    Attributes:
        of: What is compared: `carbon`, `price` or `energy`.
        baseline: The scenario's baseline.
        jobs: Number of compared jobs.
        left_out: Number of jobs with a deadline that are not compared: what they use is not known,
            or not above 0 under the baseline.
        variants: By variant.
        bound: Shares that the least possible saves, and of how many jobs it is known.
    """

    of: str
    baseline: str
    jobs: int
    left_out: int
    variants: dict[str, VariantSavings]
    bound: NotRequired[dict[str, float]]


def compare_deadlines(
    results: Sequence[RunResult],
    baselines: Mapping[str, str],
    baseline: str,
    weight: str,
    least: Amounts | None = None,
) -> DeadlineSavings | None:
    """Compare jobs with deadlines one by one; None if there are none, or their use is unknown.

    Args:
        results: All runs.
        baselines: The baseline of each variant.
        baseline: That of the scenario.
        weight: What is compared: a key of `WEIGHTS`.
        least: The least possible amounts, if they were computed.
    """
    variants = list(dict.fromkeys(result.variant for result in results))
    amounts: dict[str, Amounts] = {name: {} for name in variants}
    allowed: dict[str, Amounts] = {name: {} for name in variants}
    late = dict.fromkeys(variants, 0)
    for result in results:
        for seed_and_job, amount, is_late, ratio in _amounts(result, WEIGHTS[weight]):
            amounts[result.variant][seed_and_job] = amount
            allowed[result.variant][seed_and_job] = ratio
            late[result.variant] += is_late
    used = amounts[baseline]
    compared = [
        job
        for job, amount in used.items()
        if amount > 0 and all(np.isfinite(own.get(job, np.nan)) for own in amounts.values())
    ]
    if not compared:
        return None
    saved = {
        name: np.array([1 - own[job] / used[job] for job in compared])
        for name, own in amounts.items()
    }
    weights = np.array([used[job] for job in compared])
    table: dict[str, VariantSavings] = {}
    for name in variants:
        together = float(saved[name] @ weights / weights.sum())
        ratio = float(np.mean([allowed[name][job] for job in compared]))
        table[name] = {
            "late": late[name],
            "allowed": ratio,
            "saved": float(saved[name].mean()),
            "together": together,
        }
        if baselines[name] != name:
            more = saved[name] - saved[baselines[name]]
            table[name] |= {
                "than": baselines[name],
                "more": float(more.mean()),
                "losing": float(np.mean(more < -SAME)),
                "worst": max(0.0, -float(more.min())),
            }
    compared_all: DeadlineSavings = {
        "of": weight,
        "baseline": baseline,
        "jobs": len(compared),
        "left_out": len(used) - len(compared),
        "variants": table,
    }
    if least is not None:
        known = [job for job in compared if job in least]
        if known:
            compared_all["bound"] = {
                "saved": float(np.mean([1 - least[job] / used[job] for job in known])),
                "together": 1
                - sum(map(least.__getitem__, known)) / sum(used[job] for job in known),
                "jobs": len(known),
            }
    return compared_all


def _amounts(
    result: RunResult, column: str
) -> Iterator[tuple[tuple[int, str], float, bool, float]]:
    """Of each job with a deadline, over all attempts: amount, lateness, time allowed to trained."""
    jobs = result.tables["jobs"]
    if not {"deadline_s", column} <= set(jobs.column_names):
        return
    columns = ["submit_time_s", "deadline_s", "finish_time_s", "time_s", column]
    jobs = jobs.select(["job_id", *columns])
    jobs = jobs.filter(pc.is_valid(jobs["deadline_s"]))
    ways = ("min", "max", "max", "sum", "sum")
    sums = [
        (name, way, pc.ScalarAggregateOptions(skip_nulls=name != column))
        for name, way in zip(columns, ways, strict=True)
    ]
    grouped: pa.Table = jobs.group_by("job_id", use_threads=False).aggregate(sums)
    names = ("job_id", *(f"{name}_{way}" for name, way, _ in sums))
    rows = zip(*(grouped[name].to_pylist() for name in names), strict=True)
    for job, submit_s, due_s, end_s, time_s, amount in rows:
        known = np.nan if amount is None else amount
        is_late = end_s > due_s + ROUNDING * abs(due_s)
        yield (result.seed, job), known, is_late, (due_s - submit_s) / time_s if time_s else np.nan


HEADS: Final = (
    "variant",
    "late",
    "deadline / run time",
    "saved together",
    "saved, mean of jobs",
    "against",
    "saves more (points)",
    "jobs that lose",
    "loses at most (points)",
)
"""Titles of the columns of `deadline_rows`."""


def deadline_title(summary: Json) -> str:
    """The title of the table, with what it compares."""
    compared: DeadlineSavings = summary["deadlines"]
    return (
        f"Jobs with deadlines: {WORDS[compared['of']]} saved, together and by job, "
        f"against {compared['baseline']}"
    )


def deadline_rows(summary: Json) -> Iterator[tuple[str, ...]]:
    """The cells of each variant, and of the bound."""
    compared: DeadlineSavings = summary["deadlines"]
    jobs = compared["jobs"]
    for name, own in compared["variants"].items():
        ratio = f"{own['allowed']:.2f}" if "allowed" in own else "-"
        cells = (
            name,
            f"{own['late']}",
            ratio,
            _percent(own.get("together")),
            _percent(own["saved"]),
        )
        if "than" in own:
            losing = round(own["losing"] * jobs)
            worst = f"{100 * own['worst']:.1f}" if losing else "-"
            yield (
                *cells,
                own["than"],
                f"{100 * own['more']:+z.2f}",
                f"{losing:,} of {jobs:,}",
                worst,
            )
        else:
            yield (*cells, "-", "-", "-", "-")
    if "bound" in compared:
        bound = compared["bound"]
        saved = _percent(bound.get("together")), _percent(bound["saved"])
        yield ("the least possible", "-", "-", *saved, "-", "-", "-", "-")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:z.1f} %"


def deadline_notes(summary: Json) -> Iterator[str]:
    """The meaning of the columns."""
    compared: DeadlineSavings = summary["deadlines"]
    baseline, jobs, what = compared["baseline"], compared["jobs"], WORDS[compared["of"]]
    yield (
        f"late: jobs that ended after their deadline. saved together: share of the {what} of "
        f"{count(jobs, 'job')} (all seeds) under {baseline}, as in the amounts of the cluster, "
        "which are of other jobs and of free GPUs, too. saved, mean of jobs: mean of the "
        "share that each job saves; here a short job counts as much as a long one, so that the "
        "two can differ, even in their sign. saves more: that mean less that of the variant beside "
        "it; loses at most: the largest loss of a job against that variant; both in points of "
        "percent."
    )
    if compared["left_out"]:
        yield (
            f"Not compared: {count(compared['left_out'], 'job')} without known "
            f"{what} above 0 under {baseline}."
        )
    if "bound" in compared:
        known = int(compared["bound"]["jobs"])
        about = "" if known == jobs else f" It is known of {known:,} of these {jobs:,}."
        yield (
            "the least possible: each job alone between its submission and its deadline, with the "
            "future known, at any power limit or locked clock and the batch sizes of these runs, "
            f"with pauses; a job that is late may use less.{about}"
        )
