"""Comparison of a simulated with a live run, attempt by attempt."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.resolved.differences import list_differences
from wattkeeper.scenarios.analysis.study import Study

SIDES: Final = ("measured", "predicted")

KEY: Final = ("variant", "seed", "job_id", "attempt")
"""Columns that identify an attempt in both runs."""

CHOSEN: Final = ("batch_size", "power_limit_w", "clock_mhz")
"""Decisions on how an attempt runs; the last ones, where knobs changed after its start."""

METRICS: Final = {
    "time_s": "training time of an attempt",
    "energy_j": "energy of an attempt, with overheads",
    "epoch_s": "training time of an epoch",
    "epoch_j": "energy of an epoch, with its share of the overheads",
    "jct_s": "submission of the job to the end of the attempt",
}
"""Compared metrics and their meaning."""

_READ: Final = (
    *KEY,
    "group_id",
    "recurrence",
    "workload",
    "submit_time_s",
    "finish_time_s",
    *CHOSEN,
    "retunes",
    "epochs",
    "energy_j",
    "time_s",
)


def compare(measured: Study, predicted: Study) -> Json:
    """Compare the attempts that both runs have.

    Returns:
        ``measured``, ``predicted``: folder, backend (``sim`` or ``live``), scenario.
        ``differences``: entries of the scenarios that differ: ``path`` and both values.
        ``attempts``: a row for each common attempt: its key, decisions, and `METRICS`: measured,
        predicted, and the relative error of the prediction; None where a value is absent.
        ``only_measured``, ``only_predicted``: attempts of one run only.
        ``decisions``: the number of attempts ``compared``, the rows that ``differ``, and how many
        attempts were ``retuned``: their knobs changed after the start, in one run at least.
        ``errors``: by workload (``all`` for all of them) and metric: statistics of the relative
        errors of attempts that ran with the same batch size, limit and clock throughout.
        ``totals``: sums over all common attempts.
        ``absent``: number of attempts without energy, measured and predicted.

    Raises:
        InputError: If they have no attempt in common, or a table is broken.
    """
    joined = _join(measured.table("jobs", _READ), predicted.table("jobs", _READ))
    attempts: list[Json] = []
    unmatched: dict[str, list[Json]] = {"measured": [], "predicted": []}
    for row in joined.to_pylist():
        present = [side for side in SIDES if row[f"{side}:group_id"] is not None]
        if len(present) == 2:
            attempts.append(_compare_attempt(row))
        else:
            unmatched[present[0]].append(_identify(row, present[0]))
    if not attempts:
        raise InputError(
            f"{measured.origin} and {predicted.origin} have no attempt of a job in common: give "
            "two runs of one scenario, with variants and seeds that both have\n"
            + "\n".join(
                f"  {r.origin}: scenario {r.manifest['scenario']['name']}, {_list_runs(r)}"
                for r in (measured, predicted)
            )
        )
    same = [row for row in attempts if not (row["differ"] or _is_retuned(row))]
    workloads = sorted({row["workload"] or "" for row in same})
    return {
        "measured": _describe(measured),
        "predicted": _describe(predicted),
        "differences": list(
            list_differences(
                {
                    "measured": measured.manifest["scenario"],
                    "predicted": predicted.manifest["scenario"],
                }
            )
        ),
        "decisions": {
            "compared": len(attempts),
            "differ": [row for row in attempts if row["differ"]],
            "retuned": sum(map(_is_retuned, attempts)),
        },
        "errors": {"all": _errors(same)}
        | {
            "by_workload": {
                name: _errors([row for row in same if (row["workload"] or "") == name])
                for name in workloads
            }
        },
        "totals": {name: _total(attempts, name) for name in ("time_s", "energy_j")},
        "absent": {side: sum(row["energy_j"][side] is None for row in attempts) for side in SIDES},
        "only_measured": unmatched["measured"],
        "only_predicted": unmatched["predicted"],
        "attempts": attempts,
    }


def _describe(results: Study) -> Json:
    manifest = results.manifest
    return {
        "folder": results.origin,
        "backend": manifest.get("backend"),
        "scenario": manifest["scenario"]["name"],
    }


def _list_runs(results: Study) -> str:
    """Variants and seeds, for a message."""
    runs = results.table("jobs", ("variant", "seed"))
    variants, seeds = (
        ", ".join(map(str, sorted(column.unique().to_pylist()))) for column in runs.columns
    )
    return f"variants {variants or 'none'}; seeds {seeds or 'none'}"


def _join(measured: pa.Table, predicted: pa.Table) -> pa.Table:
    """A row an attempt of either run, with the columns of both, in order of ending."""
    sides = []
    for name, table in zip(SIDES, (measured, predicted), strict=True):
        columns = {
            column if column in KEY else f"{name}:{column}": table[column] for column in _READ
        }
        sides.append(pa.table(columns | {f"{name}:row": pa.array(np.arange(table.num_rows))}))
    joined = sides[0].join(sides[1], list(KEY), join_type="full outer", use_threads=False)
    return joined.sort_by([("measured:row", "ascending"), ("predicted:row", "ascending")])


def _identify(row: Mapping[str, Any], side: str) -> Json:
    names = ("group_id", "recurrence", "workload")
    return {key: row[key] for key in KEY} | {name: row[f"{side}:{name}"] for name in names}


def _compare_attempt(row: Mapping[str, Any]) -> Json:
    attempt = _identify(row, "measured")
    for name in (*CHOSEN, "retunes", "epochs"):
        attempt[name] = {side: row[f"{side}:{name}"] for side in SIDES}
    names = ("batch_size",) if _is_retuned(attempt) else CHOSEN
    attempt["differ"] = [name for name in names if len(set(attempt[name].values())) > 1]
    measured, predicted = (_values(row, side) for side in SIDES)
    return attempt | {name: _pair(measured[name], predicted[name]) for name in METRICS}


def _is_retuned(attempt: Json) -> bool:
    """Whether knobs of an attempt changed after its start, so that the last ones tell little."""
    return any(attempt["retunes"].values())


def _pair(measured: float | None, predicted: float | None) -> Json:
    """Both values, and the error of the prediction over the measured one; None if undefined."""
    error = None
    if measured is not None and predicted is not None and measured > 0:
        error = predicted / measured - 1
    return {"measured": measured, "predicted": predicted, "error": error}


def _values(row: Mapping[str, Any], side: str) -> dict[str, float | None]:
    time_s, energy_j = _known(row[f"{side}:time_s"]), _known(row[f"{side}:energy_j"])
    epochs = row[f"{side}:epochs"]
    return {
        "time_s": time_s,
        "energy_j": energy_j,
        "epoch_s": time_s / epochs if epochs and time_s is not None else None,
        "epoch_j": energy_j / epochs if epochs and energy_j is not None else None,
        "jct_s": row[f"{side}:finish_time_s"] - row[f"{side}:submit_time_s"],
    }


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _errors(attempts: Sequence[Json]) -> Json:
    return {name: _statistics([row[name]["error"] for row in attempts]) for name in METRICS}


def _statistics(errors: Sequence[float | None]) -> Json:
    """Mean with its sign; mean, median and 95th percentile of the sizes."""
    known: Floats = np.array([error for error in errors if error is not None], dtype=float)
    if not len(known):
        return {"n": 0, "mean": None, "mean_size": None, "median_size": None, "p95_size": None}
    sizes = np.abs(known)
    return {
        "n": len(known),
        "mean": float(known.mean()),
        "mean_size": float(sizes.mean()),
        "median_size": float(np.median(sizes)),
        "p95_size": float(np.quantile(sizes, 0.95)),
    }


def _total(attempts: Sequence[Json], name: str) -> Json:
    """Sums over the attempts of which both values are known."""
    pairs = [(row[name]["measured"], row[name]["predicted"]) for row in attempts]
    known = [pair for pair in pairs if None not in pair]
    sums = (math.fsum(side) for side in zip(*known, strict=True)) if known else (None, None)
    return {"n": len(known)} | _pair(*sums)
