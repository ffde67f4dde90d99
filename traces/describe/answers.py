"""What profiles can and cannot answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean, stdev

from wattkeeper.policies.json_types import Json
from wattkeeper.policies.profile import Curve, Profile
from wattkeeper.traces.formats.profiles.rows import ABOUT
from wattkeeper.traces.profiles import Boundary, ProfileSet


def list_answers(profiles: ProfileSet, boundaries: Mapping[str, Boundary]) -> Iterator[Json]:
    """By workload: what its energy is of, the spread over its runs, and what it cannot answer.

    Spreads are standard deviations over the mean, at the default batch size; absent where runs were
    not measured one by one.
    """
    for workload, (energy_of, nodes) in boundaries.items():
        profile = profiles.profiles.get(workload)
        yield {
            "workload": workload,
            "gpu_type": profiles.gpu_type,
            "gpus": profiles.gpus,
            "energy_of": energy_of if profile is None or profile.measured else None,
            "nodes": nodes or None,
            **({} if profile is None else _spread(profile)),
            "cannot": list(_gaps(profile)),
        }


def _gaps(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "no runs to the target: a scenario has to state workload.epochs"
        return
    if not profile.measured:
        yield "no energy: only time can be compared (eta 0)"
    curves = profile.curves.values()
    if all(len(curve.limits_w) == 1 and not curve.clocks for curve in curves):
        none = "one power limit" if profile.limited else "no power limits"
        yield f"{none}: tune has nothing to choose"
    if len(profile.curves) == 1:
        yield "one batch size: configure has nothing to choose"
    if all(len(curve.epochs) == 1 for curve in curves):
        yield "one run: nothing is known of the spread"


def _spread(profile: Profile) -> Json:
    """Number of runs that reached the target, and the spread of their time and energy."""
    curve = profile.curves[profile.default_batch_size]
    reached = [run for run, epochs in enumerate(curve.epochs) if epochs <= profile.max_epochs]
    if not curve.paces or len(reached) < 2:
        return {}
    times, energies = zip(*(_run_totals(curve, run) for run in reached), strict=True)
    spread = {"runs": len(reached), "time_spread_pct": 100 * stdev(times) / mean(times)}
    if profile.measured:
        spread["energy_spread_pct"] = 100 * stdev(energies) / mean(energies)
    return spread


def _run_totals(curve: Curve, run: int) -> tuple[float, float]:
    time_s, energy_j = curve.of_run(run).epoch(curve.max_limit_w)
    return curve.epochs[run] * time_s, curve.epochs[run] * energy_j


def list_stated(parameters: Mapping[str, Json]) -> Json:
    """What a table of measurements says of itself, and which of that it does not; empty else."""
    if "about" not in parameters:
        return {}
    about = parameters["about"]
    absent = [key for key in ABOUT if key != "name" and key not in about]
    return {"stated": about, "not_stated": absent}
