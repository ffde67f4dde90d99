"""What searches on recorded tables found for their work, and what of it was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from wattkeeper.policies.json_types import Json
from wattkeeper.sim.results.run_result import RunResult
from wattkeeper.sim.results.statistics import interval

PERCENTS: Final = (5, 10, 25, 50, 100)
"""Work at which searches are compared, in percent of as many mean trainings from scratch."""


NUMBERS: Final = {"trainings": "jobs", "modelled": "modelled", "recorded": "recorded"}
"""Metrics of numbers by their key in the summary."""


def found_metric(percent: int) -> str:
    """The metric of the best validation accuracy at so much work."""
    return f"best_at_{percent}"


def summarise_found(results: Sequence[RunResult]) -> Json:
    """By variant, over seeds.

    Returns:
        ``best``: by percentage (`PERCENTS`) the best validation accuracy so far, with its 95 %
        interval; None where a search had trained no network by then. ``trainings``, ``modelled``
        and ``recorded``: numbers of all, of modelled ones, and of recorded ones from parents.
        ``recorded_saved``: the share of the work from scratch that the last ones saved, of each
        seed that has any.
    """
    found: Json = {}
    for variant in dict.fromkeys(result.variant for result in results):
        runs = [result.metrics for result in results if result.variant == variant]
        shares = [
            1 - run["recorded_work"] / run["recorded_work_from_scratch"]
            for run in runs
            if run["recorded"]
        ]
        found[variant] = {
            "best": {
                str(percent): _over_seeds([run[found_metric(percent)] for run in runs])
                for percent in PERCENTS
            },
            **{name: int(math.fsum(run[key] for run in runs)) for name, key in NUMBERS.items()},
            "recorded_saved": _over_seeds(shares),
        }
    return found


def _over_seeds(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and 95 % interval of shares, which are at most 1."""
    if not values or any(map(math.isnan, values)):
        return None
    bounds = interval(values)
    ci95 = None if bounds is None else [min(bound, 1.0) for bound in bounds]
    return {"mean": math.fsum(values) / len(values), "ci95": ci95, "n": len(values)}
