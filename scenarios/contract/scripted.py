"""Profiles, jobs, signals and a context without a world, by which policies are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np

from wattkeeper.policies.forecasts.persistence import PersistenceConfig
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import EmptyZoo, ZooView
from wattkeeper.policies.points.views import Configuration, Options, Outcome, Start
from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.signals import SignalView
from wattkeeper.sim.kernel.clock import FixedTime
from wattkeeper.sim.kernel.signals import Signal, SignalSeries
from wattkeeper.sim.kernel.streams import NamedStreams

GPU: Final = "V100"
SAMPLES: Final = 20_000.0
"""Of an epoch."""
LIMITS_W: Final = (100.0, 150.0, 250.0)
"""150 W is the example of `fixed-power`."""
NEVER: Final = math.inf
MAX_EPOCHS: Final = 10

RUNS: Final[Mapping[int, tuple[float, ...]]] = {
    8: (NEVER, NEVER),
    16: (9.0, NEVER, 8.0),
    32: (6.0, 5.0, 7.0),
    64: (6.0, NEVER, 5.0, 7.0),
    128: (NEVER,),
}
"""Epochs to the target by batch size; some reach it sometimes, some never."""


def curve(
    batch_size: int,
    runs: Sequence[float],
    *,
    limits_w: Sequence[float] = LIMITS_W,
    epoch_s: float = 10.0,
    power_w: float = 200.0,
) -> Curve:
    """A curve that slows down and draws less below its highest limit, where it takes `epoch_s`."""
    share = [limit / limits_w[-1] for limit in limits_w]
    return Curve(
        batch_size,
        tuple(limits_w),
        tuple(epoch_s / part**0.5 for part in share),
        tuple(power_w * part**0.9 for part in share),
        tuple(runs),
    )


def profile(
    workload: str = "cnn",
    gpus: int = 1,
    *,
    runs: Mapping[int, Sequence[float]] = RUNS,
    default: int = 32,
    max_epochs: int = MAX_EPOCHS,
    limits_w: Sequence[float] = LIMITS_W,
    epoch_s: float = 10.0,
) -> Profile:
    """A workload whose epochs get shorter, and take more power, as the batch size grows."""
    curves = {
        batch_size: curve(
            batch_size,
            runs[batch_size],
            limits_w=limits_w,
            epoch_s=epoch_s * (32 / batch_size) ** 0.3,
            power_w=gpus * 180.0 * (batch_size / 32) ** 0.1,
        )
        for batch_size in sorted(runs)
    }
    return Profile(
        workload,
        GPU,
        gpus,
        0.9,
        max_epochs,
        default,
        limits_w[-1],
        curves,
        samples_per_epoch=SAMPLES,
    )


def job(
    job_id: str = "a",
    submit_s: float = 0.0,
    *,
    group: str | None = None,
    recurrence: int = 1,
    workload: str | None = "cnn",
    gpus: int = 1,
    duration_s: float = 10.0,
    scale: float = 1.0,
) -> Job:
    """A job that is its own group if none is named."""
    group_id = job_id if group is None else group
    return Job(
        job_id,
        group_id,
        recurrence,
        workload,
        gpus,
        submit_s,
        duration_s,
        scale,
        estimate_s=duration_s,
        recorded_start_s=submit_s,
    )


def scripted_series(name: str) -> SignalSeries:
    """A daily wave around 300 g/kWh, made up."""
    values = np.array([300 + 100 * math.sin(2 * math.pi * n / 96) for n in range(96)])
    return SignalSeries(name, np.arange(0.0, 86400.0, 900.0), values, 86400.0, "g/kWh", 86400.0)


def scripted_signal(name: str) -> Signal:
    """The scripted series, whose present value is the forecast."""
    return Signal(scripted_series(name), PersistenceConfig(), NamedStreams(1))


class ScriptedContext:
    """A context without a world: of one profile and named random streams.

    Args:
        known: The profile.
        seed: Of the random streams.
        eta: Weight of energy in the objective.
    """

    def __init__(self, known: Profile, seed: int = 1, eta: float = 0.5) -> None:
        self.now_s = 0.0
        self.objective = Objective(eta)
        self.zoo: ZooView = EmptyZoo()
        self.known = known
        self._names = NamedStreams(seed)
        self._streams: dict[str, np.random.Generator] = {}

    def rng(self, name: str) -> np.random.Generator:
        """See `wattkeeper.policies.points.policy.Context`."""
        return self._streams.setdefault(name, self._names.policy("test", name))

    def foresight(self, start: Start) -> Profile:
        """See `wattkeeper.policies.points.policy.Context`."""
        return self.known

    def signal(self, name: str) -> SignalView:
        """See `wattkeeper.policies.points.policy.Context`."""
        return scripted_signal(name).view(FixedTime(self.now_s))

    def options(self) -> Options:
        """What may be chosen."""
        sizes = tuple(self.known.curves)
        limits = tuple(curve.limits_w for curve in self.known.curves.values())
        default, most_w = self.known.default_batch_size, self.known.max_power_w
        return Options(
            "cnn@V100x1",
            GPU,
            1,
            sizes,
            limits,
            default,
            most_w,
            self.known.max_epochs,
            samples_per_epoch=SAMPLES,
        )

    def outcome(self, start: Start, decided: Configuration, limit_w: float) -> Outcome:
        """What becomes of an attempt: one of the recorded runs, cut at the bound."""
        curve = self.known.curves[decided.batch_size]
        target = curve.epochs[self._names.pick(start.job, start.attempt, len(curve.epochs))]
        time_s, energy_j = curve.epoch(limit_w)
        most: float = self.known.max_epochs
        if math.isfinite(decided.cost_bound):
            epoch_cost = self.objective.cost(energy_j, time_s, curve.max_limit_w)
            most = min(most, decided.cost_bound // epoch_cost)
        epochs = int(min(target, most))
        time_s, energy_j = epochs * time_s, epochs * energy_j
        cost = self.objective.cost(energy_j, time_s, self.known.max_power_w)
        reached = target <= most
        return Outcome(start, decided.batch_size, limit_w, epochs, time_s, energy_j, cost, reached)


@cache
def example(config: type[PolicyConfig]) -> PolicyConfig:
    """A config in which every required field takes its first example."""
    schema = config.model_json_schema()
    fields = schema["properties"]
    needed = {name: fields[name]["examples"][0] for name in schema.get("required", [])}
    return config.model_validate(needed)
