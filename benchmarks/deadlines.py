"""What `tune: deadline` saves: one job with a deadline on series of carbon intensity.

Prints, in per cent of the carbon at the highest limit: the best static limit, the plan on each
forecast, the optimum with foresight; and in which share of runs the plan loses to the static limit,
by how much at worst, the number of missed deadlines, and changes of knobs a day.

    python -m benchmarks.deadlines SHARED [--days 1 3] [--slack 0.25 1] [--starts 40] [--between]

SHARED holds `data/carbon` and `data/zeus-nsdi23`. `--between` takes starts midway between those of
the table: settings were chosen on these.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from tests.support.carbon import read_curve, read_year
from tests.support.deadlines import Predict, replay_plan, replay_static
from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal
from wattkeeper.policies.forecasts.history import HistoryConfig
from wattkeeper.policies.forecasts.noisy import NoisyConfig
from wattkeeper.policies.planning.deadline import Menu, best_static
from wattkeeper.policies.planning.hull import SpeedPoint, fastest, speed_points
from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.planning.optimum import fill

SLOT_S, DAY = 900.0, 96

SETTINGS: dict[str, tuple[ForecastConfig, float]] = {
    "history": (HistoryConfig(), 0.0),
    "history, surcharge": (HistoryConfig(), 0.05),
    "history 24 h, surcharge": (HistoryConfig(fade_s=86_400), 0.05),
    "day-ahead": (NoisyConfig(), 0.0),
    "day-ahead, surcharge": (NoisyConfig(), 0.05),
    "day-ahead 48 h, surcharge": (NoisyConfig(fade_s=172_800), 0.05),
}
"""Forecast and surcharge by name."""


def predict(forecast: Forecast, series: Floats, start: int, slot: int, slots: int) -> Floats:
    """A forecast made in a slot of a run."""
    here = start + slot
    stream = partial(np.random.default_rng, [1, here])
    truth = series[here : here + slots]
    return forecast.predict(KnownSignal(series[: here + 1], SLOT_S, slot, truth, stream), slots)


def spread_starts(slots: int, count: int, between: bool, total: int) -> Ints:
    """Slots at which runs start, from the second week of the year to its end."""
    starts = np.linspace(7 * DAY, total - slots - 1, count + between)
    return ((starts[1:] + starts[:-1]) / 2 if between else starts).astype(np.int64)


def replay_year(
    points: tuple[SpeedPoint, ...], series: Floats, days: int, slack: float, name: str, starts: Ints
) -> str:
    """A row of the table."""
    top, (config, surcharge) = fastest(points), SETTINGS[name]
    forecast: Forecast = config.build()
    work, deadline_s = top.speed * days * 86_400, days * 86_400 * (1 + slack)
    static, slots = best_static(points, work, deadline_s), round(days * DAY * (1 + slack))
    menu, rows = Menu(points), []
    for start in starts.tolist():
        rates = series[start:]
        predicted: Predict = partial(predict, forecast, series, start)
        run = replay_plan(menu, rates, SLOT_S, work, deadline_s, predicted, surcharge)
        bound = fill(menu.points, rates[:slots], np.full(slots, SLOT_S), work)
        assert bound is not None
        costs = (replay_static(static, rates, SLOT_S, work), run.cost, bound.cost)
        full = replay_static(top, rates, SLOT_S, work)
        saved = [100 * (1 - cost / full) for cost in costs]
        rows.append((*saved, run.end_s > deadline_s + 1e-6, run.changes / days))
    best, ours, most, missed, changes = np.array(rows).T
    gain = ours - best
    return (
        f"{best.mean():6.1f} {ours.mean():6.1f} {most.mean():7.1f}  {gain.mean():+6.2f} "
        f"{100 * np.mean(gain < 0):6.0f} % {gain.min():7.1f} {missed.sum():7.0f} "
        f"{changes.mean():8.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--days", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--slack", type=float, nargs="+", default=[0.25, 1.0])
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--between", action="store_true")
    given = parser.parse_args()
    points = speed_points(interpolate_limits(read_curve(given.shared), 5))
    head = "job, slack, series, forecast"
    print(f"{head:46} static   plan optimum    gain   lose   worst  missed  changes")
    for days in given.days:
        for slack in given.slack:
            for country in ("de", "nl"):
                series = read_year(given.shared, country)
                slots = round(days * DAY * (1 + slack))
                starts = spread_starts(slots, given.starts, given.between, len(series))
                for name in SETTINGS:
                    row = replay_year(points, series, days, slack, name, starts)
                    label = f"{days} d, {slack:.0%}, {country}, {name}"
                    print(f"{label:46} {row}", flush=True)


if __name__ == "__main__":
    main()
