"""Fits the power model of GPU types to recorded power-limit sweeps, and measures its errors.

``python benchmarks/fit_gpu_types.py DATA`` fits and writes traces/gpus/gpu_types.json, whose facts
it keeps. DATA has ``zeus-nsdi23/summary_power_*.csv`` and ``zeus-profile-sweeps/`` (ml-energy/zeus)
and ``power-limits/rtx3090_sweeps.csv`` (noonghunna/club-3090). ``--check`` writes nothing and
prints the errors of types that were left out of the fit; ``--compare`` those of other models, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.gpus.curve import ClockShape, LimitCurve
from wattkeeper.traces.gpus.model import BOUNDNESS, Boundness, Memory, read_gpu_types

FILE = Path(__file__).resolve().parents[1] / "traces/gpus/gpu_types.json"
TYPES = {"a40": "A40", "p100": "P100-PCIE", "rtx6000": "RTX6000", "v100": "V100-PCIE"}
QUANTILES: Mapping[Boundness, float] = {"low": 0.98, "middle": 0.5, "high": 0.02}
"""Of speed; of a job that is little bound, speed is high."""
STEP_W = 25.0
KEPT_SHARE = 0.95
"""Share of the limits of types left out at which recordings are in the stated range."""


class Sweep(NamedTuple):
    """A training or an inference at each limit, ascending; the last stands for no limit."""

    gpu_type: str
    source: str
    network: str
    limit_w: Floats
    power_w: Floats
    time: Floats  # of the same work, in any unit

    @property
    def busy_w(self) -> float:
        return float(self.power_w[-1])

    @property
    def top_w(self) -> float:
        return float(self.limit_w[-1])

    @property
    def speed(self) -> Floats:
        return np.asarray(self.time[-1] / self.time)

    @property
    def is_limited(self) -> bool:
        """Whether the lowest limit is below what it draws."""
        return self.busy_w > float(self.limit_w[0])


class Curve(Protocol):
    """What is compared: `LimitCurve` and others."""

    def power_w(self, limit_w: float, busy_w: float, /) -> float: ...
    def speed(self, limit_w: float, busy_w: float, /) -> float: ...


Curves = Mapping[Boundness, Curve]
Fitter = Callable[[Sequence[Sweep]], Callable[[float, float], Curves]]
"""From sweeps of some types to the curves of another, by its base power and highest limit."""


def _sweep(gpu_type: str, source: str, network: str, rows: pd.DataFrame) -> Sweep:
    rows = rows.groupby("limit", as_index=False)[["power", "time"]].mean()
    limit_w, power_w, time = (rows[name].to_numpy(float) for name in ("limit", "power", "time"))
    return Sweep(gpu_type, source, network, limit_w, power_w, time)


def read_sweeps(data: Path) -> list[Sweep]:
    """All recorded sweeps."""
    sweeps = []
    for key, gpu_type in TYPES.items():
        table = pd.read_csv(data / f"zeus-nsdi23/summary_power_{key}.csv").rename(
            columns={"power_limit": "limit", "average_power": "power", "time_per_epoch": "time"}
        )
        for job, rows in table.groupby(["dataset", "network", "batch_size", "optimizer"]):
            sweeps.append(_sweep(gpu_type, "zeus-nsdi23", f"{job[1]} on {job[0]}", rows))
    for path in sorted((data / "zeus-profile-sweeps").glob("*.csv")):
        table = pd.read_csv(path)
        energy_j = table.filter(regex="^gpu[0-9]+_energy$")
        limit_w = table.window_name.str.extract(r"_(\d+)$")[0].astype(float)
        power_w = energy_j.mean(axis=1) / table.elapsed_time
        rows = pd.DataFrame({"limit": limit_w, "power": power_w, "time": table.elapsed_time})
        key, network, gpus = path.stem.split("+")
        sweeps.append(_sweep(TYPES[key.lower()], "zeus-profile-sweeps", network + gpus, rows))
    table = pd.read_csv(data / "power-limits/rtx3090_sweeps.csv")
    table = table.rename(columns={"power_limit_w": "limit", "measured_w": "power"})
    table["time"] = 1 / table.tokens_per_s
    for job, rows in table.groupby(["model", "mode"]):
        sweeps.append(_sweep("RTX3090", "club-3090", f"{job[0]} {job[1]}", rows))
    return sweeps


def read_base_w(data: Path, sweeps: Sequence[Sweep]) -> dict[str, float]:
    """Base power by type: the lowest draw of a training that no limit touches.

    The RTX 3090 has no such training, but clocks: there it is the power at which the clock, which
    is linear in the limit up to 250 W, becomes zero.
    """
    base_w = {
        gpu_type: min(float(s.power_w.min()) for s in sweeps if s.gpu_type == gpu_type)
        for gpu_type in TYPES.values()
    }
    table = pd.read_csv(data / "power-limits/rtx3090_sweeps.csv").query("power_limit_w <= 250")
    zeros = [
        np.polynomial.Polynomial.fit(rows.sm_clock_mhz, rows.power_limit_w, 1)(0)
        for _, rows in table.groupby(["model", "mode"])
    ]
    return {**base_w, "RTX3090": float(np.mean(zeros))}


def _pinball(errors: Floats, quantile: float) -> Floats:
    """Loss whose smallest sum has `quantile` of the errors below zero, smoothed at zero."""
    width = 0.004
    return quantile * errors + width * np.logaddexp(0, -errors / width)


class Family(NamedTuple):
    """A kind of model: its clock, and whether jobs have phases of peak and of base power."""

    clock: Callable[..., Callable[[float], float]]
    start: list[float]
    bounds: list[tuple[float, float]]
    phases: bool


def _bent(steepness: float, bend: float) -> Callable[[float], float]:
    return ClockShape(steepness, bend).clock


def _power_law(exponent: float) -> Callable[[float], float]:
    return lambda share: float(share ** (1 / exponent))


BENT = Family(_bent, [1.4, 3.5], [(0.5, 6), (1, 12)], phases=True)
POWER_LAW = Family(_power_law, [2.0], [(1, 4)], phases=True)


class Fitted(NamedTuple):
    """Parameters of the clock, and boundness and peak share by case."""

    clock: tuple[float, ...]
    cases: dict[Boundness, tuple[float, float]]


def fit_family(family: Family, base_w: Mapping[str, float], sweeps: Sequence[Sweep]) -> Fitted:
    """All cases at once: the clock is that of all three. Each type counts the same.

    With phases, a job of the high case is bound by the clock alone and peaks at the highest limit,
    and one of the low case draws the same power all the time.
    """
    sweeps = [sweep for sweep in sweeps if sweep.is_limited]
    n = len(family.start)

    def unpack(parameters: Floats) -> Fitted:
        values = parameters.tolist()
        middle, low, last = values[n:]
        middle_peak, high = (last, (1.0, 1.0)) if family.phases else (0.0, (last, 0.0))
        return Fitted(
            tuple(values[:n]), {"low": (low, 0.0), "middle": (middle, middle_peak), "high": high}
        )

    def loss(parameters: Floats) -> float:
        fitted = unpack(parameters)
        errors: dict[tuple[str, Boundness], list[float]] = {}
        for sweep in sweeps:
            base, top_w = base_w[sweep.gpu_type], sweep.top_w
            recorded = list(zip(sweep.limit_w.tolist(), sweep.speed.tolist(), strict=True))[:-1]
            for case, curve in build_curves(family, fitted, base, top_w).items():
                errors.setdefault((sweep.gpu_type, case), []).extend(
                    speed - curve.speed(limit_w, sweep.busy_w) for limit_w, speed in recorded
                )
        return sum(
            float(_pinball(np.array(values), QUANTILES[case]).mean())
            for (_, case), values in errors.items()
        )

    start = [*family.start, 0.7, 0.2, 0.75 if family.phases else 0.9]
    bounds = [*family.bounds, (0.0, 1.0), (0.0, 1.0), (0.4 if family.phases else 0.0, 1.0)]
    return unpack(minimize(loss, start, method="L-BFGS-B", bounds=bounds).x)


def build_curves(family: Family, fitted: Fitted, base_w: float, top_w: float) -> Curves:
    clock = family.clock(*fitted.clock)
    return {
        case: LimitCurve(base_w, top_w, top_w, boundness, peak_share * top_w, clock)
        for case, (boundness, peak_share) in fitted.cases.items()
    }


def family_fitter(family: Family, base_w: Mapping[str, float]) -> Fitter:
    def fit(sweeps: Sequence[Sweep]) -> Callable[[float, float], Curves]:
        return partial(build_curves, family, fit_family(family, base_w, sweeps))

    return fit


class QuantileCurve(NamedTuple):
    """Running quantiles of recorded speed and relative power against limit by own power."""

    ratio: Floats
    speeds: Floats
    powers: Floats

    def speed(self, limit_w: float, busy_w: float, /) -> float:
        return float(np.interp(limit_w / busy_w, self.ratio, self.speeds))

    def power_w(self, limit_w: float, busy_w: float, /) -> float:
        return min(limit_w, busy_w * float(np.interp(limit_w / busy_w, self.ratio, self.powers)))


def fit_quantiles(sweeps: Sequence[Sweep]) -> Callable[[float, float], Curves]:
    sweeps = [sweep for sweep in sweeps if sweep.is_limited]
    ratio = np.concatenate([s.limit_w[:-1] / s.busy_w for s in sweeps])
    speed = np.concatenate([s.speed[:-1] for s in sweeps])
    power = np.concatenate([s.power_w[:-1] / s.busy_w for s in sweeps])
    grid = np.linspace(0.4, 1.2, 17)

    def at(values: Floats, quantile: float) -> Floats:
        near = [values[abs(ratio - x) <= 0.05] for x in grid]
        running = np.array([np.quantile(v, quantile) for v in near])
        return np.asarray(np.minimum(1, np.maximum.accumulate(running)))

    curves = {c: QuantileCurve(grid, at(speed, q), at(power, q)) for c, q in QUANTILES.items()}
    return lambda base_w, top_w: curves


def pool_base_share(
    base_w: Mapping[str, float], sweeps: Sequence[Sweep], gpu_types: Sequence[str]
) -> dict[Memory, float]:
    """Mean of base power by highest limit, by kind of memory."""
    memory = {facts.gpu_type: facts.memory for facts in read_gpu_types().types}
    top_w = {sweep.gpu_type: sweep.top_w for sweep in sweeps}
    kinds: tuple[Memory, ...] = ("gddr", "hbm")
    return {
        kind: float(
            np.mean([base_w[name] / top_w[name] for name in gpu_types if memory[name] == kind])
        )
        for kind in kinds
    }


class Modelled(NamedTuple):
    """Curves on one sweep: speed and power at its limits, by case."""

    speed: Mapping[Boundness, Floats]
    power_w: Mapping[Boundness, Floats]


class Deviations(NamedTuple):
    """How far recordings are outside of the range of the cases at each limit, of its ends."""

    speed: Floats
    power: Floats

    @property
    def largest(self) -> Floats:
        return np.maximum(self.speed, self.power)


def model_sweep(sweep: Sweep, curves: Curves) -> Modelled:
    """Speed and power that curves have at the limits of a sweep."""
    limits_w = sweep.limit_w.tolist()
    return Modelled(
        {c: np.array([curves[c].speed(w, sweep.busy_w) for w in limits_w]) for c in BOUNDNESS},
        {c: np.array([curves[c].power_w(w, sweep.busy_w) for w in limits_w]) for c in BOUNDNESS},
    )


def find_deviations(sweep: Sweep, modelled: Modelled) -> Deviations:
    """Deviations of a sweep at all limits but the last one, which is none."""

    def deviate(recorded: Floats, cases: Mapping[Boundness, Floats]) -> Floats:
        values = np.array(list(cases.values()))
        low, high = 1 - recorded / values.min(0), recorded / values.max(0) - 1
        return np.asarray(np.maximum(0.0, np.maximum(low, high)))[:-1]

    return Deviations(
        deviate(sweep.speed, modelled.speed), deviate(sweep.power_w, modelled.power_w)
    )


def pool_error(deviations: Mapping[str, Sequence[Deviations]]) -> float:
    """The deviation that `KEPT_SHARE` of the limits keep, by GPU type and sweep.

    Types count the same, and so do the sweeps of a type, and the limits of a sweep.
    """
    values, weights = [], []
    for sweeps in deviations.values():
        for each in sweeps:
            values.append(each.largest)
            weights.append(np.full(len(each.largest), 1 / (len(each.largest) * len(sweeps))))
    order = np.argsort(np.concatenate(values))
    kept = np.cumsum(np.concatenate(weights)[order]) / len(deviations)
    return float(np.concatenate(values)[order][int(np.searchsorted(kept, KEPT_SHARE))])


def measure(sweep: Sweep, modelled: Modelled, range_error: float) -> dict[str, float]:
    """Errors of curves on one sweep. Energy is that of the same work; cost is at eta 0.5."""
    limits_w, (speeds, powers) = sweep.limit_w.tolist(), modelled
    deviations = find_deviations(sweep, modelled)
    errors = {
        "speed_within": float((deviations.speed <= range_error).mean()),
        "power_within": float((deviations.power <= range_error).mean()),
        "both_within": float((deviations.largest <= range_error).mean()),
        "speed_in_cases": float((deviations.speed == 0).mean()),
        "power_in_cases": float((deviations.power == 0).mean()),
        "both_in_cases": float((deviations.largest == 0).mean()),
        "speed_error": float(abs(speeds["middle"] - sweep.speed)[:-1].mean()),
        "power_error": float(abs(powers["middle"] / sweep.power_w - 1)[:-1].mean()),
        "width": float((speeds["low"] - speeds["high"])[:-1].mean()),
    }
    for name, fixed_w in fixed_powers(sweep.top_w).items():
        recorded = (sweep.power_w + fixed_w) * sweep.time
        choice = int(np.argmin((powers["middle"] + fixed_w) / speeds["middle"]))
        distance_w = limits_w[choice] - limits_w[int(np.argmin(recorded))]
        errors[f"{name}_near"] = float(abs(distance_w) <= STEP_W)
        errors[f"{name}_excess"] = float(recorded[choice] / recorded.min() - 1)
    return errors


def fixed_powers(top_w: float) -> dict[str, float]:
    """What is minimised, by the power that it adds to the drawn one: energy, cost at eta 0.5."""
    return {"energy": 0.0, "cost": top_w}


def best_limits(sweeps: Sequence[Sweep], curves: Curves) -> dict[str, float]:
    """Best limits of one type: of the median over its sweeps of recorded and modelled curves."""
    best = {}
    middle = curves["middle"]
    for name, fixed_w in fixed_powers(sweeps[0].top_w).items():

        def model(sweep: Sweep, fixed_w: float = fixed_w) -> list[float]:
            return [
                (middle.power_w(w, sweep.busy_w) + fixed_w) / middle.speed(w, sweep.busy_w)
                for w in sweep.limit_w.tolist()
            ]

        recorded = [pd.Series((s.power_w + fixed_w) * s.time, s.limit_w) for s in sweeps]
        modelled = [pd.Series(model(s), s.limit_w) for s in sweeps]
        for kind, series in (("recorded", recorded), ("modelled", modelled)):
            relative = pd.DataFrame([one / one.iloc[-1] for one in series])
            median = relative.dropna(axis="columns", thresh=len(series) // 2).median()
            best[f"{name}_{kind}_w"] = float(median.index.to_numpy()[int(median.argmin())])
    return best


class HeldOut(NamedTuple):
    """A GPU type that was left out: its sweeps, and curves and base power of the others."""

    sweeps: list[Sweep]
    curves: Curves

    def model(self) -> list[Modelled]:
        return [model_sweep(sweep, self.curves) for sweep in self.sweeps]

    def deviations(self) -> list[Deviations]:
        return [find_deviations(*pair) for pair in zip(self.sweeps, self.model(), strict=True)]


def hold_out(
    sweeps: Sequence[Sweep], base_w: Mapping[str, float], fitter: Fitter
) -> dict[str, HeldOut]:
    """Leave each GPU type out in turn.

    Sweeps that draw less than their lowest limit are left out: no limit touches them.
    """
    facts = {one.gpu_type: one for one in read_gpu_types().types}
    held = {}
    for held_out in base_w:
        build = fitter([sweep for sweep in sweeps if sweep.gpu_type != held_out])
        others = [name for name in base_w if name != held_out]
        share = pool_base_share(base_w, sweeps, others)[facts[held_out].memory]
        tested = [s for s in sweeps if s.gpu_type == held_out and s.is_limited]
        base = max(share * tested[0].top_w, facts[held_out].idle_w or 0.0)
        held[held_out] = HeldOut(tested, build(base, tested[0].top_w))
    return held


def cross_validate(
    sweeps: Sequence[Sweep], base_w: Mapping[str, float], fitter: Fitter
) -> pd.DataFrame:
    """Errors by GPU type that was left out: means over its sweeps.

    The range of the cases is widened by the error that the other types had when left out.
    """
    held = hold_out(sweeps, base_w, fitter)
    deviations = {name: each.deviations() for name, each in held.items()}
    rows = {}
    for name, (tested, curves) in held.items():
        error = pool_error({other: deviations[other] for other in held if other != name})
        errors = pd.DataFrame(
            [
                measure(sweep, modelled, error)
                for sweep, modelled in zip(tested, held[name].model(), strict=True)
            ]
        )
        best = best_limits(tested, curves)
        rows[name] = {"sweeps": len(tested), "range_error": error, **errors.mean(), **best}
    return pd.DataFrame(rows).T


def by_limit(sweeps: Sequence[Sweep], base_w: Mapping[str, float], fitter: Fitter) -> pd.DataFrame:
    """Share of the sweeps with power and speed in the stated range, by type left out and limit."""
    held = hold_out(sweeps, base_w, fitter)
    deviations = {name: each.deviations() for name, each in held.items()}
    rows = []
    for name, (tested, _) in held.items():
        error = pool_error({other: deviations[other] for other in held if other != name})
        for sweep, each in zip(tested, deviations[name], strict=True):
            limits_w = sweep.limit_w[:-1].tolist()
            rows += [(name, *row) for row in zip(limits_w, each.largest <= error, strict=True)]
    table = pd.DataFrame(rows, columns=["type", "limit_w", "both_within"])
    return table.pivot_table(index="type", columns="limit_w", values="both_within")


def fit_types(sweeps: Sequence[Sweep], base_w: Mapping[str, float]) -> dict[str, Any]:
    """The contents of gpu_types.json: its facts, with new figures."""
    fitted = fit_family(BENT, base_w, sweeps)
    medians = {}
    for gpu_type in TYPES.values():
        draws: dict[str, list[float]] = {}
        for sweep in sweeps:
            if sweep.gpu_type == gpu_type and sweep.source == "zeus-nsdi23":
                draws.setdefault(sweep.network, []).append(sweep.busy_w)
        medians[gpu_type] = np.array([np.median(powers) for powers in draws.values()])
    top_w = {sweep.gpu_type: sweep.top_w for sweep in sweeps}
    shares = [powers / top_w[name] for name, powers in medians.items()]
    contents: dict[str, Any] = json.loads(FILE.read_bytes())
    contents["pooled"] = {
        "shape": dict(zip(("steepness", "bend"), _rounded(fitted.clock), strict=True)),
        "cases": {
            case: dict(zip(("boundness", "peak_share"), _rounded(values), strict=True))
            for case, values in fitted.cases.items()
        },
        "base_share": {
            kind: round(share, 3)
            for kind, share in pool_base_share(base_w, sweeps, list(base_w)).items()
        },
        "busy_share": round(float(np.mean([np.median(one) for one in shares])), 3),
        "busy_range_share": _rounded(
            [np.mean([one.min() for one in shares]), np.mean([one.max() for one in shares])]
        ),
        "range_error": round(
            pool_error(
                {
                    name: held.deviations()
                    for name, held in hold_out(sweeps, base_w, family_fitter(BENT, base_w)).items()
                }
            ),
            3,
        ),
        "fitted_from": f"{sum(s.is_limited for s in sweeps)} power-limit sweeps of "
        f"{', '.join(base_w)} (Zeus, NSDI '23; club-3090)",
    }
    for facts in contents["types"]:
        name = facts["gpu_type"]
        count = sum(sweep.gpu_type == name for sweep in sweeps)
        if name in medians:
            powers = medians[name]
            facts["fit"] = {
                "base_w": round(base_w[name], 1),
                "busy_w": round(float(np.median(powers)), 1),
                "busy_range_w": [round(float(w), 1) for w in (powers.min(), powers.max())],
                "fitted_from": f"{count} power-limit sweeps of this type (Zeus, NSDI '23); "
                "the shape of the curves from all types",
            }
        elif name in base_w:
            facts["fit"] = {
                "base_w": round(base_w[name], 1),
                "fitted_from": f"{count} power-limit sweeps of this type (club-3090); busy power "
                "and the shape of the curves from other types",
            }
    return contents


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(float(value), 3) for value in values]


def main(arguments: Sequence[str]) -> int:
    options = {one for one in arguments if one.startswith("--")}
    paths = [one for one in arguments if one not in options]
    if len(paths) != 1 or options - {"--check", "--compare"}:
        print(
            "usage: python benchmarks/fit_gpu_types.py DATA [--check] [--compare]", file=sys.stderr
        )
        return 2
    data = Path(paths[0])
    sweeps = read_sweeps(data)
    base_w = read_base_w(data, sweeps)
    if not options:
        FILE.write_text(json.dumps(fit_types(sweeps, base_w), indent=2) + "\n", encoding="utf-8")
        return 0
    fitters = {"bent clock, phases": family_fitter(BENT, base_w)}
    if "--compare" in options:
        fitters["power law, phases"] = family_fitter(POWER_LAW, base_w)
        fitters["bent clock, steady"] = family_fitter(BENT._replace(phases=False), base_w)
        fitters["power law, steady"] = family_fitter(POWER_LAW._replace(phases=False), base_w)
        fitters["quantiles"] = fit_quantiles
    for name, fitter in fitters.items():
        table = cross_validate(sweeps, base_w, fitter)
        table.loc["mean"] = table.mean()
        print(name, table.round(3).to_string(), sep="\n")
    print(by_limit(sweeps, base_w, fitters["bent clock, phases"]).round(2).to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
