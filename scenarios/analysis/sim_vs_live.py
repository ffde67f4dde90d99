"""What was predicted against what was measured, attempt by attempt: two results folders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.analysis.manifest import Manifest

KEY: Final = ("variant", "seed", "job_id", "attempt")
"""What an attempt is matched by."""

CHOSEN: Final = ("batch_size", "power_limit_w")
"""Decisions that say how an attempt ran."""

METRICS: Final = {
    "time_s": "training time of an attempt",
    "energy_j": "energy of an attempt, with overheads",
    "epoch_s": "training time of an epoch",
    "epoch_j": "energy of an epoch, with its share of the overheads",
    "jct_s": "submission of the job to the end of the attempt",
}
"""What is compared."""

_READ: Final = (*KEY, "group_id", "recurrence", "workload", "submit_time_s", "finish_time_s",
                *CHOSEN, "epochs", "energy_j", "time_s")  # fmt: skip


class ComparedStudy(NamedTuple):
    """A study, as far as it is compared.

    Attributes:
        folder: Where it is.
        manifest: Its manifest.
        attempts: The columns `_READ` of its attempts, in order of ending.
    """

    folder: Path
    manifest: Manifest
    attempts: pa.Table


def read(folder: Path) -> ComparedStudy:
    """Read a results folder.

    Raises:
        InputError: If it is none, or a file in it is broken.
    """
    saved = study.read(folder)
    return ComparedStudy(folder, saved.manifest, saved.table("jobs", _READ))


def compare(measured: ComparedStudy, predicted: ComparedStudy) -> Json:
    """Compare the attempts that both have.

    Returns:
        ``measured``, ``predicted``: folder, backend (``sim`` or ``live``), scenario.
        ``differences``: where the scenarios differ: ``path``, and its value in both.
        ``attempts``: a row for each that both have: what it is matched by, decisions, and the
        metrics `METRICS`: measured, predicted, and the relative error of the prediction; None
        where a value is absent.
        ``only_measured``, ``only_predicted``: the others.
        ``decisions``: how many attempts were ``compared`` and which ``differ``.
        ``errors``: by workload, ``all`` for all of them, and metric: statistics of the relative
        errors of attempts that ran with the same batch size and limit.
        ``totals``: sums over all attempts that both have.
        ``absent``: of how many attempts the energy is unknown, measured and predicted.

    Raises:
        InputError: If they have no attempt in common.
    """
    both = _joined(measured.attempts, predicted.attempts)
    attempts: list[Json] = []
    alone: dict[str, list[Json]] = {"measured": [], "predicted": []}
    for row in both.to_pylist():
        sides = {side: row[f"{side}:group_id"] is not None for side in alone}
        if all(sides.values()):
            attempts.append(_attempt(row))
        else:
            alone["measured" if sides["measured"] else "predicted"].append(_named(row))
    if not attempts:
        raise InputError(
            f"{measured.folder} and {predicted.folder} have no attempt of a job in common: give "
            "two runs of one scenario, with variants and seeds that both have\n"
            + "\n".join(f"  {r.folder}: scenario {r.manifest['scenario']['name']}, {_runs(r)}"
                        for r in (measured, predicted))
        )  # fmt: skip
    same = [row for row in attempts if not row["differ"]]
    workloads = sorted({row["workload"] or "" for row in same})
    return {
        "measured": _about(measured),
        "predicted": _about(predicted),
        "differences": list(_differences(measured, predicted)),
        "decisions": {
            "compared": len(attempts),
            "differ": [row for row in attempts if row["differ"]],
        },
        "errors": {"all": _errors(same)} | {
            "by_workload": {
                name: _errors([row for row in same if (row["workload"] or "") == name])
                for name in workloads
            }
        },
        "totals": {name: _total(attempts, name) for name in ("time_s", "energy_j")},
        "absent": {
            side: sum(row["energy_j"][side] is None for row in attempts)
            for side in ("measured", "predicted")
        },
        "only_measured": alone["measured"],
        "only_predicted": alone["predicted"],
        "attempts": attempts,
    }  # fmt: skip


def _about(results: ComparedStudy) -> Json:
    manifest = results.manifest
    return {
        "folder": str(results.folder),
        "backend": manifest.get("backend"),
        "scenario": manifest["scenario"]["name"],
    }


def _runs(results: ComparedStudy) -> str:
    """Variants and seeds for a message."""
    variants, seeds = (
        ", ".join(str(value) for value in sorted(results.attempts[name].unique().to_pylist()))
        for name in ("variant", "seed")
    )
    return f"variants {variants or 'none'}; seeds {seeds or 'none'}"


def _joined(measured: pa.Table, predicted: pa.Table) -> pa.Table:
    """Rows of both, those of one attempt as one, in order of ending."""
    sides = []
    for name, table in (("measured", measured), ("predicted", predicted)):
        columns = {
            column if column in KEY else f"{name}:{column}": table[column] for column in _READ
        }
        sides.append(pa.table(columns | {f"{name}:at": pa.array(np.arange(table.num_rows))}))
    both = sides[0].join(sides[1], list(KEY), join_type="full outer", use_threads=False)
    return both.sort_by([("measured:at", "ascending"), ("predicted:at", "ascending")])


def _named(row: Mapping[str, Any]) -> Json:
    side = "predicted" if row["measured:group_id"] is None else "measured"
    also = ("group_id", "recurrence", "workload")
    return {key: row[key] for key in KEY} | {name: row[f"{side}:{name}"] for name in also}


def _attempt(row: Mapping[str, Any]) -> Json:
    sides = {side: _values(row, side) for side in ("measured", "predicted")}
    shown: Json = _named(row)
    for name in (*CHOSEN, "epochs"):
        shown[name] = {side: row[f"{side}:{name}"] for side in sides}
    shown["differ"] = [n for n in CHOSEN if len(set(shown[n].values())) > 1]
    for name in METRICS:
        seen: Json = {side: values[name] for side, values in sides.items()}
        shown[name] = seen | {"error": _relative(seen["measured"], seen["predicted"])}
    return shown


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


def _relative(measured: float | None, predicted: float | None) -> float | None:
    """Error of a prediction over what was measured; None if there is no such number."""
    if measured is None or predicted is None or measured <= 0:
        return None
    return predicted / measured - 1


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
    if not known:
        return {"n": 0, "measured": None, "predicted": None, "error": None}
    measured, predicted = (math.fsum(side) for side in zip(*known, strict=True))
    return {
        "n": len(known),
        "measured": measured,
        "predicted": predicted,
        "error": _relative(measured, predicted),
    }


def _differences(measured: ComparedStudy, predicted: ComparedStudy) -> Iterator[Json]:
    """Where the resolved scenarios say different things."""
    left, right = (dict(flat(r.manifest["scenario"])) for r in (measured, predicted))
    for path in sorted(left.keys() | right.keys()):
        if left.get(path) != right.get(path):
            yield {"path": path, "measured": left.get(path), "predicted": right.get(path)}


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """What is in nested mappings, by its path."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            yield from flat(inside, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
