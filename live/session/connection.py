"""Connects a session with what decides for it: a controller, a recorder, or policies in process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from wattkeeper.live.devices.device import common_range
from wattkeeper.live.session import distributed
from wattkeeper.live.session.arguments import SessionArguments, power_limit_steps
from wattkeeper.live.session.distributed import Ranks
from wattkeeper.live.session.instruments import Instruments
from wattkeeper.live.session.knob_watch import FixedLimit, KnobWatch
from wattkeeper.live.wire import clock
from wattkeeper.live.wire.client import LINK, RemoteCoordinator, coordinator_from_environment
from wattkeeper.live.wire.messages import Assignment, Coordinator
from wattkeeper.policies.errors import EnvironmentLacks, InputError

RECORDING: Final = "WATTKEEPER_RECORDING"
"""Environment variable: folder of the recorder that started this process."""

Change = Callable[[float], None]


class StandAlone:
    """Connects a session with policies in its process, or with a recorder; rank 0 does for all.

    Attributes:
        coordinator: Decides for the session; from `begin` on.
    """

    coordinator: Coordinator

    def __init__(self, arguments: SessionArguments) -> None:
        self._arguments = arguments

    def begin(self, instruments: Instruments, ranks: Ranks, stack: ExitStack) -> Assignment:
        """Open the devices, which `stack` closes, and begin the attempt.

        Raises:
            InputError: If there is no such policy, or a power limit is not allowed.
            PolicyError: If a policy cannot be asked live.
            EnvironmentLacks: If the cost needs an energy that nothing measures, or what decides
                cannot be reached.
        """

        def begin() -> Assignment:
            instruments.open(stack)
            self.coordinator = self._make_coordinator(instruments)
            return self.coordinator.begin()

        return ranks.call_together(begin, Assignment)

    def watch_limit(self, can_change: bool, change: Change, stop: threading.Event) -> FixedLimit:
        """What waits for limits that are changed from outside: there are none.

        Args:
            can_change: Whether the assignment and the devices allow them.
            change: Puts a limit (W) in force if another one is.
            stop: Set once the training shall stop.
        """
        return FixedLimit(clock.run_clock())

    def _make_coordinator(self, instruments: Instruments) -> Coordinator:
        if not distributed.is_leader():
            return distributed.FollowerCoordinator()
        if folder := os.environ.get(RECORDING):
            from wattkeeper.live.session.recording_coordinator import RecordingCoordinator

            return RecordingCoordinator(Path(folder), self._arguments, instruments)
        return _local_coordinator(self._arguments, instruments)


class Driven:
    """Connects a session with the controller of a live run; has the methods of `StandAlone`."""

    coordinator: RemoteCoordinator

    def begin(self, instruments: Instruments, ranks: Ranks, stack: ExitStack) -> Assignment:
        """Open the devices, and begin the attempt; each process of it does."""
        instruments.open(stack)
        self.coordinator = coordinator_from_environment()
        return self.coordinator.begin()

    def watch_limit(self, can_change: bool, change: Change, stop: threading.Event) -> FixedLimit:
        """What waits for limits that the controller changes."""
        wall = clock.run_clock()
        return KnobWatch(self.coordinator, wall, change, stop) if can_change else FixedLimit(wall)


def choose_connection(arguments: SessionArguments) -> StandAlone | Driven:
    """The connection of a session: to the controller that started it, if one did."""
    return Driven() if os.environ.get(LINK) else StandAlone(arguments)


def _local_coordinator(arguments: SessionArguments, instruments: Instruments) -> Coordinator:
    """The coordinator that asks policies in this process."""
    try:
        from wattkeeper.live.session.local_coordinator import LocalCoordinator
        from wattkeeper.live.session.store import SessionStore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise EnvironmentLacks(
            "a session keeps what it learns in a database, for which SQLAlchemy is missing: "
            "pip install 'wattkeeper[live]'"
        ) from error
    from wattkeeper.live.session.policy_host import JobPlan, configs_of

    configure, tune = configs_of(arguments.configure, arguments.tune)
    gpu_type, gpus, max_power_w = _hardware(arguments, instruments)
    plan = JobPlan(
        job=arguments.job,
        batch_sizes=tuple(sorted(set(arguments.batch_sizes))),
        default_batch_size=arguments.default_batch_size,
        max_epochs=arguments.max_epochs,
        target=arguments.target,
        higher_is_better=arguments.higher_is_better,
        eta=float(arguments.eta),
        gpu_type=gpu_type,
        gpus=gpus,
        limits_w=_limits(arguments, instruments),
        max_power_w=max_power_w,
        configure=configure,
        tune=tune,
        samples_per_epoch=arguments.samples_per_epoch or 0.0,
    )
    if plan.tuning.slices and not plan.samples_per_epoch:
        raise InputError(
            f"the {plan.tuning.point} policy {plan.tuning.kind!r} trains slices of some steps: say "
            "how many samples an epoch has, as with samples_per_epoch=len(data)"
        )
    plan.tuning.check(plan.options)
    plan.configure.check(plan.options)
    return LocalCoordinator(SessionStore(arguments.store), plan, arguments.lease_s)


def _hardware(arguments: SessionArguments, instruments: Instruments) -> tuple[str, int, float]:
    """Type and number of the devices, and what the cost counts a second of one with, W."""
    devices = instruments.devices
    if instruments.meter.how == "absent" and arguments.eta > 0:
        from wattkeeper.live.devices import explain_absence

        raise EnvironmentLacks(
            f"nothing here measures energy, so that no cost with eta={arguments.eta:g} is known: "
            "say eta=0, which counts time alone, or see with `wattkeeper doctor` what is missing\n"
            + explain_absence()
        )
    gpu_type = instruments.gpu_type
    if not devices:
        return gpu_type, 1, 1.0
    highest = [device.limits.highest_w for device in devices if device.limits is not None]
    if len(highest) == len(devices):
        return gpu_type, len(devices), sum(highest) / len(highest)
    if 0 < arguments.eta < 1:
        raise EnvironmentLacks(
            f"{gpu_type} has no highest power limit, with which a cost with eta={arguments.eta:g} "
            "weighs time against energy: say eta=1 (energy alone) or eta=0 (time alone)"
        )
    return gpu_type, len(devices), 1.0


def _limits(arguments: SessionArguments, instruments: Instruments) -> tuple[float, ...]:
    """The limits that all devices may be given, W, ascending; that in force if none may."""
    common = common_range(instruments.devices)
    if common is None or any(device.limits is None for device in instruments.devices):
        return ()
    if not instruments.limiter.allowed or instruments.meter.how == "absent":
        return () if instruments.power_limit_w is None else (instruments.power_limit_w,)
    if arguments.power_limits_w is None:
        return power_limit_steps(*common)
    for limit_w in arguments.power_limits_w:
        common.check(limit_w)
    return tuple(sorted({float(limit_w) for limit_w in arguments.power_limits_w}))
