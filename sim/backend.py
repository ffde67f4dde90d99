"""What carries decisions out: the seam between the world and its clock's reality."""

from __future__ import annotations

from typing import Protocol

from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import (
    Configuration,
    Job,
    Knobs,
    Measurement,
    Options,
    Running,
    Start,
)
from wattkeeper.sim.cluster import Placement


class Attempt:
    """A try of a job, from its start to its end.

    Attributes:
        start: The view that `Configure` was shown.
        placement: The GPUs it holds.
        configuration: What `Configure` chose.
        power_limit_w: The limit it runs at, W; None until `Tune` chose it.
        profiled: Whether its power limits were profiled.
        begun_s: When it started.
        power: What it draws now, in `wattkeeper.sim.recorder.UNITS_PER_WATT`.
    """

    __slots__ = (
        "begun_s",
        "configuration",
        "placement",
        "power",
        "power_limit_w",
        "profiled",
        "start",
    )

    def __init__(
        self, start: Start, placement: Placement, configuration: Configuration, begun_s: float
    ) -> None:
        self.start = start
        self.placement = placement
        self.configuration = configuration
        self.power_limit_w = configuration.power_limit_w
        self.profiled = False
        self.begun_s = begun_s
        self.power = 0

    def running(self, measured: tuple[Measurement, ...] = ()) -> Running:
        """The view for `Tune`."""
        return Running(self.start, self.configuration, measured)


class Backend(Protocol):
    """Runs attempts and reports to the `Listener` what becomes of them."""

    def options(self, job: Job, gpu_type: str) -> Options:
        """What may be chosen for a job on a GPU type.

        Raises:
            ProfileMissing: If nothing is known of it.
        """

    def foresight(self, start: Start) -> Profile:
        """The profile that an attempt will be replayed from.

        Raises:
            PolicyError: If the future cannot be known.
        """

    def begin(self, attempt: Attempt, knobs: Knobs) -> None:
        """Start an attempt; it reports on its own from then on."""


class Listener(Protocol):
    """What a backend tells the world."""

    def draws(self, attempt: Attempt, power_w: float) -> None:
        """From now on the attempt draws so much, W."""

    def measured(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Knobs:
        """Profiling found this; the answer holds from now on."""

    def ended(
        self, attempt: Attempt, epochs: int, time_s: float, energy_j: float, reached: bool
    ) -> None:
        """The attempt is over, after so much training as profiled."""
