"""Report on a trace of kind ``profiles``."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import pyarrow as pa

from wattkeeper.policies.errors import ProfileMissing
from wattkeeper.policies.json_types import Json
from wattkeeper.policies.profile import UNLIMITED_W
from wattkeeper.traces.describe.answers import list_answers, list_stated
from wattkeeper.traces.describe.potential import Choice, potential
from wattkeeper.traces.gpus.boundness import measure_boundness
from wattkeeper.traces.gpus.model import find_gpu_model
from wattkeeper.traces.profiles import (
    Boundary,
    Points,
    ProfileSet,
    Runs,
    TargetRuns,
    clock_points,
    find_boundaries,
    load_profiles,
    power_points,
    target_runs,
)
from wattkeeper.traces.trace import Trace

SLOWER: Final = 1.02
"""A higher limit is odd if its epoch takes more than so many times that of the next lower one."""


def report(trace: Trace, gpu_type: str | None, eta: float) -> Json:
    """Coverage, convergence, oddities and potential.

    Returns:
        ``gpu_types``: all in the trace, with their number of GPUs.
        ``coverage``: by workload and GPU type, what was recorded and what of it is usable; with
        ``clocks_mhz`` and ``clock_points`` where clocks were locked.
        ``answers``: by workload and GPU type, what energy is of, the spread over runs, and what
        ``cannot`` be answered.
        ``measurement``: of a table of measurements, what it says of itself, and what it does not.
        ``convergence``: by workload and batch size, runs, share that reached the target within the
        largest number of epochs, and the mean epochs of these.
        ``oddities``: ``one_table_only``, ``above_cap``, ``slower_at_higher_limit``,
        ``never_reached``.
        ``unmeasured``: workloads and GPU types without measured power.
        ``boundness``: by workload and GPU type with a power model, in how many batch sizes any
        limit acts, and the range of `measure_boundness` over these.
        ``potential``: `potential.Potential` by workload and GPU type, as dicts; for those without
        measured power only if `eta` is 0, and without energy.

    Raises:
        ProfileMissing: If there is no profile of that GPU type.
    """
    table = trace.tables["profiles"]
    kinds = sorted(set(zip(table["gpu_type"].to_pylist(), table["gpus"].to_pylist(), strict=True)))
    chosen = [kind for kind in kinds if gpu_type in (None, kind[0])]
    if not chosen:
        there = ", ".join(f"{gpus} x {name}" for name, gpus in kinds)
        raise ProfileMissing(f"no profile on GPU type {gpu_type!r}. There are: {there}")
    sets = [load_profiles(trace, *kind) for kind in chosen]
    points = {kind: power_points(table, *kind) for kind in chosen}
    runs = target_runs(trace.tables)
    workloads = {row["workload"]: row for row in trace.tables["workloads"].to_pylist()}
    return {
        "gpu_types": [{"gpu_type": name, "gpus": gpus} for name, gpus in kinds],
        "eta": eta,
        "coverage": [
            row
            for kind, s in zip(chosen, sets, strict=True)
            for row in _coverage(s, points[kind], _list_clocks(table, kind))
        ],
        "answers": [
            row
            for kind, s in zip(chosen, sets, strict=True)
            for row in list_answers(s, find_boundaries(table, *kind))
        ],
        "measurement": list_stated(trace.parameters),
        "convergence": [_convergence(row, runs.get(name, {})) for name, row in workloads.items()],
        "oddities": {
            "one_table_only": [
                row for kind in chosen for row in _one_table_only(kind, points[kind], runs)
            ],
            "above_cap": [
                _above_cap(kind, points[kind], find_boundaries(table, *kind)) for kind in chosen
            ],
            "slower_at_higher_limit": [_slower(kind, points[kind]) for kind in chosen],
            "never_reached": list(_never_reached(workloads, runs)),
        },
        "unmeasured": [
            _on((s.gpu_type, s.gpus)) | {"workload": name}
            for s in sets
            for name, profile in s.profiles.items()
            if not profile.measured
        ],
        "boundness": [row for kind in chosen for row in _boundness(kind, points[kind])],
        "potential": [
            _potential(s, name, eta)
            for s in sets
            for name, profile in s.profiles.items()
            if profile.measured or not eta
        ],
    }


def _list_clocks(table: pa.Table, kind: tuple[str, int]) -> Mapping[str, Json]:
    """By workload with locked clocks: these, MHz, ascending, and the number of their points."""
    recorded: dict[str, list[int]] = {}
    for (workload, _), points in clock_points(table, *kind).items():
        recorded.setdefault(workload, []).extend(point[0] for point in points)
    return {
        workload: {"clocks_mhz": sorted(set(clocks)), "clock_points": len(clocks)}
        for workload, clocks in recorded.items()
    }


def _coverage(
    profiles: ProfileSet, points: Mapping[str, Points], clocks: Mapping[str, Json]
) -> Iterator[Json]:
    for workload, by_batch in points.items():
        limits = {b: {point[0] for point in curve} for b, curve in by_batch.items()}
        grid = sorted(set().union(*limits.values()))
        missing = [[b, limit] for b in sorted(limits) for limit in grid if limit not in limits[b]]
        profile = profiles.profiles.get(workload)
        yield {
            "workload": workload,
            "gpu_type": profiles.gpu_type,
            "gpus": profiles.gpus,
            "batch_sizes": sorted(by_batch),
            "power_limits_w": [limit for limit in grid if limit != UNLIMITED_W],
            "points": sum(map(len, by_batch.values())),
            "missing": missing,
            **clocks.get(workload, {}),
            "usable_batch_sizes": list(profile.curves) if profile else [],
            "default_batch_size": profile.default_batch_size if profile else None,
            "why_not": profiles.absent.get(workload),
        }


def _convergence(workload: Json, runs: Mapping[int, TargetRuns]) -> Json:
    by_batch = []
    for batch_size, (epochs, _) in sorted(runs.items()):
        reached = [e for e in epochs if e <= workload["max_epochs"]]
        by_batch.append(
            {
                "batch_size": batch_size,
                "runs": len(epochs),
                "reached": len(reached) / len(epochs),
                "mean_epochs": sum(reached) / len(reached) if reached else None,
            }
        )
    keys = ("workload", "target", "higher_is_better", "max_epochs", "default_batch_size")
    return {key: workload[key] for key in keys} | {"batch_sizes": by_batch}


def _one_table_only(
    kind: tuple[str, int], points: Mapping[str, Points], runs: Runs
) -> Iterator[Json]:
    for workload, by_batch in points.items():
        power, train = set(by_batch), set(runs.get(workload, {}))
        if power != train:
            yield _on(kind) | {
                "workload": workload,
                "profiles_only": sorted(power - train),
                "convergence_only": sorted(train - power),
            }


def _above_cap(
    kind: tuple[str, int], points: Mapping[str, Points], boundaries: Mapping[str, Boundary]
) -> Json:
    """Rows whose average power is above the cap of all their GPUs together."""
    above: list[Json] = [
        {
            "workload": workload,
            "batch_size": batch_size,
            "power_limit_w": limit,
            "average_power_w": watts,
            "above_pct": 100 * (watts / (limit * kind[1]) - 1),
        }
        for workload, batch_size, curve in _curves(points)
        if boundaries[workload].energy_of == "gpu"
        for limit, _, watts in curve
        if watts > limit * kind[1] and limit != UNLIMITED_W
    ]
    rows = sum(len(curve) for *_, curve in _curves(points))
    worst = max(above, key=lambda row: row["above_pct"], default=None)
    return _on(kind) | {"rows": len(above), "of": rows, "worst": worst}


def _slower(kind: tuple[str, int], points: Mapping[str, Points]) -> Json:
    """Neighbouring limits of a batch size where the higher one is slower."""
    slower: list[Json] = []
    pairs = 0
    for workload, batch_size, curve in _curves(points):
        for (low, fast, _), (high, slow, _) in pairwise(curve):
            pairs += 1
            if slow > SLOWER * fast:
                slower.append(
                    {
                        "workload": workload,
                        "batch_size": batch_size,
                        "power_limits_w": [low, high],
                        "slower_pct": 100 * (slow / fast - 1),
                    }
                )
    worst = max(slower, key=lambda row: row["slower_pct"], default=None)
    share = len(slower) / pairs if pairs else 0.0
    return _on(kind) | {"rows": len(slower), "of": pairs, "share": share, "worst": worst}


def _curves(
    points: Mapping[str, Points],
) -> Iterator[tuple[str, int, list[tuple[float, float, float]]]]:
    for workload, by_batch in points.items():
        for batch_size, curve in sorted(by_batch.items()):
            yield workload, batch_size, sorted(curve)


def _never_reached(workloads: Mapping[str, Json], runs: Runs) -> Iterator[Json]:
    for workload, by_batch in runs.items():
        most = workloads[workload]["max_epochs"]
        never = [b for b, recorded in sorted(by_batch.items()) if min(recorded.epochs) > most]
        if never:
            yield {"workload": workload, "batch_sizes": never}


def _boundness(kind: tuple[str, int], points: Mapping[str, Points]) -> Iterator[Json]:
    """How far workloads are bound by the clock, where a GPU type has a power model."""
    model = find_gpu_model(kind[0])
    for workload, by_batch in points.items() if model is not None else ():
        assert model is not None
        curves = [sorted(curve) for curve in by_batch.values()]
        limited = [
            list(zip(*curve, strict=True))
            for curve in curves
            if len(curve) > 1 and not any(math.isnan(watts) for *_, watts in curve)
        ]
        if not limited:
            continue
        found = [
            measure_boundness(model, limits_w, [watts / kind[1] for watts in powers_w], times_s)
            for limits_w, times_s, powers_w in limited
        ]
        known = [value for value in found if value is not None]
        yield _on(kind) | {
            "workload": workload,
            "batch_sizes": len(limited),
            "limited": len(known),
            "boundness": [min(known), max(known)] if known else None,
        }


def _potential(profiles: ProfileSet, workload: str, eta: float) -> Json:
    values = potential(profiles.profiles[workload], eta)._asdict()
    return {k: _describe_choice(v) if isinstance(v, Choice) else v for k, v in values.items()}


def _describe_choice(choice: Choice) -> Json:
    """A choice, with its clock if that is locked."""
    values = choice._asdict()
    return values if choice.clock_mhz else {k: v for k, v in values.items() if k != "clock_mhz"}


def _on(kind: tuple[str, int]) -> Json:
    return {"gpu_type": kind[0], "gpus": kind[1]}
