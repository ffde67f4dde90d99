"""Energy of a cluster over a window of time, split by what GPUs do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.recording.recorder import UNITS_PER_WATT, Recorder
from wattkeeper.sim.recording.row_types import HoldRow, PauseRow, PowerChangeRow, SleepRow
from wattkeeper.traces.electricity.charges import Rate, clock
from wattkeeper.traces.electricity.series import DAY_S, Series

ATTEMPTS: Final = 1 << 17
"""Attempts that are summed up at a time."""

Clock = Callable[[Floats], Floats]
"""What has accrued at each time (s): of time itself, seconds; of a price, the cost of a constant
power of 1 W until then."""

COST: Final = "electricity_cost"
CARBON: Final = "carbon_g"
"""Metrics, and columns of jobs, that a tariff gives."""

ENERGY: Final = "cluster_energy_j"
YEAR_ENERGY: Final = "year_energy_j"
YEAR_SPAN: Final = "year_span_s"

ROUNDING: Final = 1e-9
"""Sums of many spans that should be equal differ by less, relative to them."""

YEAR_S: Final = 365 * DAY_S
SHORTEST_S: Final = 7 * DAY_S
"""Shortest time that a year is extrapolated from: days of the week differ."""


def seconds(times_s: Floats) -> Floats:
    """The clock of energy."""
    return times_s


class Tariff(NamedTuple):
    """What electricity costs, and what it emits.

    Attributes:
        rates: Per kWh, by metric: `COST` in money, `CARBON` in g; empty: neither is known.
        origin_s: Second 0 of the run, in seconds since 1970 (UTC).
    """

    rates: Mapping[str, Rate]
    origin_s: float = 0.0

    def clocks(self) -> dict[str, Clock]:
        """The clock of each metric."""
        return {name: clock(rate, self.origin_s) for name, rate in self.rates.items()}

    def is_known_until(self, time_s: float) -> bool:
        """Whether no series ends before a time, s since the start of the run."""
        return all(
            rate.repeat is not None or self.origin_s + time_s <= rate.end_s
            for rate in self.rates.values()
            if isinstance(rate, Series)
        )


NO_TARIFF: Final = Tariff({})


class Window(NamedTuple):
    """A span of time that energy is counted over, s since the start of the run."""

    from_s: float
    until_s: float

    def clip(self, times_s: Floats) -> Floats:
        """The times, those outside moved to the border."""
        return np.clip(times_s, self.from_s, self.until_s)


class EnergyParts(NamedTuple):
    """Energy of all GPUs by what they do, J; or another quantity that accrues with power.

    Attributes:
        training: Jobs that train.
        held: GPUs that jobs hold without training: waking, restoring, waiting for power.
        idle: GPUs that no job holds, awake.
        asleep: GPUs of nodes that sleep.
    """

    training: float
    held: float
    idle: float
    asleep: float

    def __add__(self, other: object) -> EnergyParts:
        assert isinstance(other, EnergyParts)
        return EnergyParts(*(a + b for a, b in zip(self, other, strict=True)))


UNKNOWN: Final = EnergyParts(math.nan, math.nan, math.nan, math.nan)


class Sleeps(NamedTuple):
    """When nodes slept, and the power of their GPUs then and awake, shapes (sleeps,)."""

    from_s: Floats
    to_s: Floats
    awake_w: Floats
    asleep_w: Floats

    def outside(self, window: Window) -> Sleeps:
        """Those that begin before a window or end after it."""
        keep = (self.from_s < window.from_s) | (self.to_s > window.until_s)
        return Sleeps(*(column[keep] for column in self))


class Account(NamedTuple):
    """The energy of a run over a window in which all its jobs ran, and what it takes to widen it.

    Attributes:
        window: The window.
        energy: Its parts, J.
        charges: The same of what accrues under a tariff, by metric.
        gpu_s: GPU time that jobs held in the window, s.
        idle_w: Power of all GPUs while no job holds any and no node sleeps, W.
        sleeps: Sleep of nodes outside the window.
        gpus: GPUs of the cluster.
        pue: Power usage effectiveness.
    """

    window: Window
    energy: EnergyParts
    charges: Mapping[str, EnergyParts]
    gpu_s: float
    idle_w: float
    sleeps: Sleeps
    gpus: int
    pue: float

    def without_energy(self) -> Account:
        """The account where nothing measured the power."""
        return self._replace(energy=UNKNOWN, charges=dict.fromkeys(self.charges, UNKNOWN))

    def widen(self, window: Window, tariff: Tariff = NO_TARIFF) -> Account:
        """The account over a window that contains the present one: no job runs in what is new.

        `tariff` is the one of the account.
        """
        before = Window(window.from_s, self.window.from_s)
        after = Window(self.window.until_s, window.until_s)

        def added(clock: Clock) -> EnergyParts:
            parts = (_without_jobs(self.idle_w, self.sleeps, w, clock) for w in (before, after))
            return next(parts) + next(parts)

        charges = {name: self.charges[name] + added(c) for name, c in tariff.clocks().items()}
        return self._replace(window=window, energy=self.energy + added(seconds), charges=charges)

    def metrics(self) -> dict[str, float]:
        """Its metrics; energy is that of the facility."""
        span_s = self.window.until_s - self.window.from_s
        parts = {
            f"{name}_energy_j": value * self.pue
            for name, value in zip(EnergyParts._fields, self.energy, strict=True)
        }
        return {
            "gpu_utilisation": self.gpu_s / (span_s * self.gpus) if span_s > 0 else 0.0,
            ENERGY: math.fsum(parts.values()),
            **parts,
            **{name: math.fsum(charged) * self.pue for name, charged in self.charges.items()},
        }


class HeldGpus(NamedTuple):
    """What the attempts of a run hold, shapes (attempts,).

    Attributes:
        thousandths: Thousandths of GPUs.
        gpu_type: Index of their type in the cluster's `gpu_types`.
    """

    thousandths: Ints
    gpu_type: Ints


def account(
    recorder: Recorder, cluster: ClusterSpec, held: HeldGpus, window: Window, tariff: Tariff
) -> Account:
    """The account of a run over a window.

    All is a sum of steps of power, whose integral is the sum of each step times what is left of the
    window after it.
    """
    sleeps = find_sleeps(recorder)

    def parts(clock: Clock) -> tuple[EnergyParts, float]:
        return _parts(recorder, cluster, held, sleeps, window, clock)

    energy, gpu_s = parts(seconds)
    charges = {name: parts(clock)[0] for name, clock in tariff.clocks().items()}
    return Account(
        window,
        energy,
        charges,
        gpu_s,
        cluster.idle_power_w,
        sleeps.outside(window),
        cluster.gpus,
        cluster.pue,
    )


def year_metrics(submitting: Account, whole: Account) -> dict[str, float]:
    """What the cluster uses in a year in which jobs are submitted as in a span of time.

    That is all that the jobs use, and what free GPUs use in the span. Jobs that hold GPUs after the
    span would hold them in a year while the next jobs are submitted: so much less GPU time is free,
    and so much less energy of free GPUs counts.

    Args:
        submitting: The account over the span.
        whole: That over all the time in which what jobs use counts.

    Returns:
        `year_span_s` (s), `year_energy_j` (J), and one metric for each rate of the tariff.
    """
    span_s = submitting.window.until_s - submitting.window.from_s
    free_gpu_s = submitting.gpus * span_s - submitting.gpu_s
    later_gpu_s = whole.gpu_s - submitting.gpu_s
    left = max(0.0, 1 - later_gpu_s / free_gpu_s) if free_gpu_s > 0 else 0.0
    factor = YEAR_S / span_s * submitting.pue

    def of_year(jobs: EnergyParts, free: EnergyParts) -> float:
        return factor * (jobs.training + jobs.held + left * (free.idle + free.asleep))

    return {
        YEAR_SPAN: span_s,
        YEAR_ENERGY: of_year(whole.energy, submitting.energy),
        **{
            year_name(name): of_year(whole.charges[name], charged)
            for name, charged in submitting.charges.items()
        },
    }


def year_name(metric: str) -> str:
    """The metric of a year, given that of the window."""
    return YEAR_ENERGY if metric == ENERGY else f"year_{metric}"


def _parts(
    recorder: Recorder,
    cluster: ClusterSpec,
    held: HeldGpus,
    sleeps: Sleeps,
    window: Window,
    clock: Clock,
) -> tuple[EnergyParts, float]:
    """The parts of a window, and the GPU time that jobs held in it, by a clock."""

    def spans() -> Iterator[tuple[slice, Floats]]:
        """Some attempts, and what accrues from their begin to their end."""
        for begin in range(0, recorder.attempts, ATTEMPTS):
            rows = slice(begin, min(begin + ATTEMPTS, recorder.attempts))
            begun, ended = (
                recorder.column(name, rows.start, rows.stop) for name in ("begun_s", "ended_s")
            )
            yield rows, _lengths(begun, ended, window, clock)

    drawn = (lengths * recorder.column("power", rows.start, rows.stop) for rows, lengths in spans())
    above = math.fsum(chain.from_iterable(joules.data for joules in drawn))
    _, changed, change = recorder.events(PowerChangeRow)
    above += _product(_lengths(changed, np.inf, window, clock), change)
    gpus = _by_type(
        cluster,
        ((lengths, held.thousandths[rows], held.gpu_type[rows]) for rows, lengths in spans()),
    )
    rows, paused, resumed = find_pauses(recorder)
    if len(rows):
        lost = _lengths(paused, resumed, window, clock)
        gpus -= _by_type(cluster, [(lost, held.thousandths[rows], held.gpu_type[rows])])
    held_from, held_to, held_power = recorder.events(HoldRow)
    idle_w = [cluster.power[name].idle_w for name in cluster.gpu_types]
    idle_of_jobs = math.fsum(each * power_w for each, power_w in zip(gpus, idle_w, strict=True))
    waiting = _product(_lengths(held_from, held_to, window, clock), held_power) / UNITS_PER_WATT
    free = _without_jobs(cluster.idle_power_w, sleeps, window, clock)
    all_idle = cluster.idle_power_w * _span(window, clock)
    above /= UNITS_PER_WATT
    training = _rest_of(above + idle_of_jobs, waiting, above + idle_of_jobs)
    idle = _rest_of(free.idle, idle_of_jobs, all_idle)
    return EnergyParts(training, waiting, idle, free.asleep), math.fsum(gpus)


def _rest_of(whole: float, part: float, size: float) -> float:
    """What a part leaves of a whole; what is left by rounding of sums of a size is none."""
    rest = whole - part
    return rest if abs(rest) > ROUNDING * abs(size) else 0.0


def _span(window: Window, clock: Clock) -> float:
    """What accrues in a window."""
    begin, end = clock(np.array(window)).tolist()
    return float(end - begin)


def _by_type(cluster: ClusterSpec, held: Iterable[tuple[Floats, Ints, Ints]]) -> Floats:
    """What accrues for held GPUs, by type; summed in order, so the same on each machine.

    `held`: in parts, lengths of time, thousandths of GPUs and their type.
    """
    types = np.arange(len(cluster.gpu_types))
    sums = np.zeros(len(types))
    for lengths, thousandths, gpu_type in held:
        weights = np.concatenate([sums, lengths * thousandths])
        sums = np.bincount(np.concatenate([types, gpu_type]), weights, len(types)).astype(float)
    return sums / WHOLE


def _without_jobs(idle_w: float, sleeps: Sleeps, window: Window, clock: Clock) -> EnergyParts:
    """The parts of a window in which no job runs."""
    slept = _lengths(sleeps.from_s, sleeps.to_s, window, clock)
    all_idle = idle_w * _span(window, clock)
    idle = _rest_of(all_idle, _product(slept, sleeps.awake_w), all_idle)
    return EnergyParts(0.0, 0.0, idle, _product(slept, sleeps.asleep_w))


def _lengths(from_s: Floats, to_s: Floats | float, window: Window, clock: Clock) -> Floats:
    """What accrues in the part of each interval that lies in a window."""
    if not len(from_s):
        return from_s
    return np.asarray(clock(window.clip(np.asarray(to_s))) - clock(window.clip(from_s)))


def _product(lengths: Floats, values: Floats | Ints) -> float:
    return math.fsum((lengths * values).data)


def find_sleeps(recorder: Recorder) -> Sleeps:
    """The sleeps of nodes."""
    from_s, to_s, awake, asleep = recorder.events(SleepRow)
    return Sleeps(from_s, to_s, awake / UNITS_PER_WATT, asleep / UNITS_PER_WATT)


def find_pauses(recorder: Recorder) -> tuple[Ints, Floats, Floats]:
    """An attempt of the job of each pause, its begin and its end, s."""
    numbers, paused, resumed = recorder.events(PauseRow)
    if not len(numbers):
        return numbers, paused, resumed
    of_attempts = recorder.column("number")
    order = np.argsort(of_attempts, kind="stable")
    rows = order[np.searchsorted(of_attempts[order], numbers)]
    return rows.astype(np.int64), paused, resumed
