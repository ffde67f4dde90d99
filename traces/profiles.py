"""From the tables of a ``profiles`` trace to the profiles that policies and the simulator read."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa

from wattkeeper.policies.errors import ProfileMissing, TraceError
from wattkeeper.policies.profile import (
    MOST_LIMITS,
    UNLIMITED_W,
    ClockSetting,
    Curve,
    EnergyOf,
    Profile,
    RunPace,
)
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.traces.schema import CONVERGENCE, PROFILES
from wattkeeper.traces.tables import add_optional
from wattkeeper.traces.trace import Trace

TOLERANCE: Final = 1e-9
"""Largest difference of a target in the convergence table from the workload's own."""

CLOCK: Final = "clock_mhz"

Tables = Mapping[str, pa.Table]
Points = dict[int, list[tuple[float, float, float]]]
"""By batch size, in file order: power limit in W, seconds per epoch, watts (NaN: not measured)."""

Clocks = dict[tuple[str, int], list[tuple[int, float, float]]]
"""By workload and batch size, in file order: locked clock in MHz, seconds per epoch, watts."""


class TargetRuns(NamedTuple):
    """The recorded runs of a workload at one batch size, in file order.

    Attributes:
        epochs: Epochs to the target; infinite where it was not reached.
        paces: Time and energy of an epoch over the means; empty if not recorded.
    """

    epochs: tuple[float, ...] = ()
    paces: tuple[RunPace, ...] = ()


class Boundary(NamedTuple):
    """What the power of a profile is of.

    Attributes:
        energy_of: GPUs, whole nodes at the plug, or the facility.
        nodes: Nodes that it was recorded on; 0 if not known.
    """

    energy_of: EnergyOf
    nodes: int


Runs = Mapping[str, Mapping[int, TargetRuns]]
"""By workload and batch size."""


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """All workloads that can be replayed on one GPU type; picklable.

    Attributes:
        gpu_type: The GPU type.
        gpus: Number of GPUs of each recorded profile.
        origin: Of the trace: ``recorded``, ``modelled`` or ``synthetic``.
        max_power_w: Largest power limit over all its workloads in W (MAXPOWER in Zeus).
        profiles: By workload, in file order.
        absent: Workloads of the trace that are not among them, with the reason.
    """

    gpu_type: str
    gpus: int
    origin: str
    max_power_w: float
    profiles: Mapping[str, Profile]
    absent: Mapping[str, str]

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that can be replayed, in file order."""
        return tuple(self.profiles)

    def get(self, workload: str) -> Profile:
        """The profile of a workload.

        Raises:
            ProfileMissing: If there is none; the message says why, and what there is.
        """
        profile = self.profiles.get(workload)
        if profile is None:
            why = self.absent.get(workload, "the trace does not know it")
            there = ", ".join(self.profiles) or "none"
            raise ProfileMissing(
                f"no profile of workload {workload!r} on {self.gpus} x {self.gpu_type}: {why}"
                f"{did_you_mean(workload, self.profiles)}. There are: {there}"
            )
        return profile


def load_profiles(
    trace: Trace | Tables, gpu_type: str, gpus: int = 1, epochs: int | None = None
) -> ProfileSet:
    """Build the profiles of a GPU type.

    A batch size is usable if both the convergence table (at the workload's own target) and the
    profile table have it. The default batch size is the workload's, or the largest one of the
    GPU type's profile table if that is smaller, or the only one.

    Args:
        trace: A trace of kind ``profiles``, or its tables.
        gpu_type: As written in the profile table.
        gpus: Number of GPUs that the profile was recorded on.
        epochs: Of each training of a workload without recorded runs; None: it cannot be replayed.

    Raises:
        ProfileMissing: If nothing was recorded on that type and number of GPUs.
        TraceError: If the trace is of another kind.
    """
    tables = trace.tables if isinstance(trace, Trace) else trace
    origin = trace.origin if isinstance(trace, Trace) else "recorded"
    if "profiles" not in tables:
        name = trace.name if isinstance(trace, Trace) else ""
        raise TraceError("holds no profiles; a trace of kind 'profiles' is needed", name)
    points = power_points(tables["profiles"], gpu_type, gpus)
    clocks = clock_points(tables["profiles"], gpu_type, gpus)
    runs = target_runs(tables, (gpu_type, gpus))
    boundaries = find_boundaries(tables["profiles"], gpu_type, gpus)
    rows: dict[str, dict[str, Any]] = {
        row["workload"]: row for row in tables["workloads"].to_pylist()
    }
    if epochs is not None:
        stated = TargetRuns((float(epochs),))
        runs = {name: dict.fromkeys(points[name], stated) for name in points} | dict(runs)
    usable = {
        name: {b: curve for b, curve in sorted(by_batch.items()) if b in runs.get(name, {})}
        for name, by_batch in points.items()
    }
    limits = [p[0] for by_batch in usable.values() for curve in by_batch.values() for p in curve]
    max_power_w = max(limits, default=0.0)
    profiles, absent = {}, dict.fromkeys(rows, f"nothing was recorded on {gpus} x {gpu_type}")
    for name, by_batch in usable.items():
        default = min(rows[name]["default_batch_size"], max(points[name]))
        if len(points[name]) == 1:
            (default,) = points[name]
        if why := _unusable(by_batch, default):
            absent[name] = why
            continue
        del absent[name]
        profiles[name] = Profile(
            workload=name,
            gpu_type=gpu_type,
            gpus=gpus,
            target=rows[name]["target"],
            max_epochs=rows[name]["max_epochs"],
            default_batch_size=default,
            max_power_w=max_power_w,
            samples_per_epoch=rows[name].get("samples_per_epoch") or 0.0,
            curves={
                b: _curve(b, curve, runs[name][b], clocks.get((name, b), []))
                for b, curve in by_batch.items()
            },
            measured=not any(
                math.isnan(p[2])
                for b, curve in by_batch.items()
                for p in (*curve, *clocks.get((name, b), ()))
            ),
            energy_of=boundaries[name].energy_of,
            nodes=boundaries[name].nodes,
        )
    return ProfileSet(gpu_type, gpus, origin, max_power_w, profiles, absent)


def power_points(table: pa.Table, gpu_type: str, gpus: int) -> dict[str, Points]:
    """The recorded points of a GPU type by workload, both in file order.

    Raises:
        ProfileMissing: If there are none; the message says what there is.
        TraceError: If there are more than `MOST_LIMITS` at a batch size.
    """
    points: dict[str, Points] = {}
    recorded: dict[tuple[str, int], None] = {}
    for row in _rows(table):
        workload, kind, number, batch_size, limit, time_s, watts, clock, *_ = row
        recorded[kind, number] = None
        if kind == gpu_type and number == gpus and clock is None:
            point = (
                UNLIMITED_W if limit is None else limit,
                time_s,
                math.nan if watts is None else watts,
            )
            points.setdefault(workload, {}).setdefault(batch_size, []).append(point)
    for workload, by_batch in points.items():
        for batch_size, curve in by_batch.items():
            if len(curve) > MOST_LIMITS:
                raise TraceError(
                    f"{workload!r} on {gpus} x {gpu_type}, batch size {batch_size}: {len(curve):,} "
                    f"power limits; at most {MOST_LIMITS:,}"
                )
    if not points:
        known = ", ".join(f"{number} x {kind}" for kind, number in recorded)
        meant = did_you_mean(gpu_type, [kind for kind, _ in recorded if kind != gpu_type])
        raise ProfileMissing(f"no profile on {gpus} x {gpu_type}{meant}. There are: {known}")
    return points


def clock_points(table: pa.Table, gpu_type: str, gpus: int) -> Clocks:
    """The recorded points of a GPU type with locked clocks, in file order."""
    points: Clocks = {}
    if CLOCK in table.column_names and table[CLOCK].null_count < table.num_rows:
        for workload, kind, number, batch_size, _, time_s, watts, clock, *_ in _rows(table):
            if kind == gpu_type and number == gpus and clock is not None:
                point = (clock, time_s, math.nan if watts is None else watts)
                points.setdefault((workload, batch_size), []).append(point)
    return points


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table of profiles, with optional columns."""
    table = add_optional(table, PROFILES)
    return zip(*(table[name].to_pylist() for name in PROFILES.names), strict=True)


def find_boundaries(table: pa.Table, gpu_type: str, gpus: int) -> dict[str, Boundary]:
    """What power is of, and on how many nodes, by workload on a GPU type, in file order."""
    return {
        row[0]: Boundary(cast("EnergyOf", row[-2] or "gpu"), row[-1] or 0)
        for row in _rows(table)
        if row[1:3] == (gpu_type, gpus)
    }


def target_runs(tables: Tables, kind: tuple[str, int] | None = None) -> Runs:
    """Recorded runs to each workload's own target.

    Args:
        tables: Of a trace of profiles.
        kind: Only runs on this GPU type and number of GPUs, and those that state none; None: all.
    """
    workloads = tables["workloads"]
    targets = dict(
        zip(workloads["workload"].to_pylist(), workloads["target"].to_pylist(), strict=True)
    )
    table = add_optional(tables["convergence"], CONVERGENCE)
    runs: dict[str, dict[int, list[tuple[float, RunPace | None]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for workload, batch_size, _, target, epochs, *own, _, time, energy in zip(
        *(table[name].to_pylist() for name in CONVERGENCE.names), strict=True
    ):
        if abs(target - targets[workload]) > TOLERANCE:
            continue
        if kind is None or own[0] is None or tuple(own) == kind:
            value = float("inf") if epochs is None else float(epochs)
            pace = None if time is None else RunPace(time, time if energy is None else energy)
            runs[workload][batch_size].append((value, pace))
    return {
        workload: {size: _join_runs(recorded) for size, recorded in by_size.items()}
        for workload, by_size in runs.items()
    }


def _join_runs(recorded: list[tuple[float, RunPace | None]]) -> TargetRuns:
    """Runs in columns; the pace of one that was not measured by itself is the mean."""
    paces = tuple(RunPace(1.0, 1.0) if pace is None else pace for _, pace in recorded)
    known = any(pace is not None for _, pace in recorded)
    return TargetRuns(tuple(epochs for epochs, _ in recorded), paces if known else ())


def _unusable(usable: Points, default: int) -> str:
    """Why a workload cannot be replayed; empty if it can."""
    if not usable:
        return "no batch size has both convergence at its target and a profile"
    if default not in usable:
        there = ", ".join(map(str, usable))
        return f"its default batch size {default} is not among the usable ones ({there})"
    return ""


def _curve(
    batch_size: int,
    points: list[tuple[float, float, float]],
    runs: TargetRuns,
    clocks: list[tuple[int, float, float]],
) -> Curve:
    limits, times, watts = zip(*sorted(points), strict=True)
    known = tuple(0.0 if math.isnan(value) else value for value in watts)
    settings = tuple(
        ClockSetting(clock, time_s, 0.0 if math.isnan(power_w) else power_w)
        for clock, time_s, power_w in sorted(clocks)
    )
    return Curve(batch_size, limits, times, known, runs.epochs, clocks=settings, paces=runs.paces)
