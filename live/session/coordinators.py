"""Chooses the coordinator of a session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wattkeeper.live.devices.device import common_range
from wattkeeper.live.session import distributed
from wattkeeper.live.session.arguments import SessionArguments, power_limit_steps
from wattkeeper.live.wire.client import LINK
from wattkeeper.policies.errors import EnvironmentLacks, InputError, NotSupported

if TYPE_CHECKING:
    from wattkeeper.live.devices.device import Device
    from wattkeeper.live.devices.power_limiter import PowerLimiter
    from wattkeeper.live.wire.messages import Coordinator, EnergySource

RECORDING: Final = "WATTKEEPER_RECORDING"
"""Environment variable: folder of the recorder that started this process."""


def is_linked() -> bool:
    """Whether a controller started this process."""
    return bool(os.environ.get(LINK))


def connect_coordinator(
    arguments: SessionArguments, devices: Sequence[Device], limiter: PowerLimiter, how: EnergySource
) -> Coordinator:
    """The coordinator of a session: the controller, the recorder, or the policies in process.

    Args:
        arguments: The arguments of the session.
        devices: Those of this process.
        limiter: Whether power limits can be set.
        how: Source of the energy; `absent` if nothing measures it.

    Raises:
        InputError: If there is no such policy, or a power limit is not allowed.
        PolicyError: If a policy cannot be asked live.
        EnvironmentLacks: If the cost needs an energy that nothing measures, or the store or the
            controller cannot be reached.
    """
    if is_linked():
        from wattkeeper.live.wire.client import coordinator_from_environment

        return coordinator_from_environment()
    if not distributed.is_leader():
        return distributed.FollowerCoordinator()
    if os.environ.get(RECORDING):
        from wattkeeper.live.session.recording_coordinator import RecordingCoordinator

        return RecordingCoordinator(Path(os.environ[RECORDING]), arguments, devices, limiter, how)
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
    gpu_type, gpus, max_power_w = _hardware(arguments, devices, how)
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
        limits_w=_limits(arguments, devices, limiter, how),
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


def _hardware(
    arguments: SessionArguments, devices: Sequence[Device], how: EnergySource
) -> tuple[str, int, float]:
    """Type and number of the devices, and what the cost counts a second of one with, W."""
    if how == "absent" and arguments.eta > 0:
        from wattkeeper.live.devices import explain_absence

        raise EnvironmentLacks(
            f"nothing here measures energy, so that no cost with eta={arguments.eta:g} is known: "
            "say eta=0, which counts time alone, or see with `wattkeeper doctor` what is missing\n"
            + explain_absence()
        )
    if not devices:
        return "cpu", 1, 1.0
    gpu_type = "+".join(sorted({device.gpu_type for device in devices}))
    highest = [device.limits.highest_w for device in devices if device.limits is not None]
    if len(highest) == len(devices):
        return gpu_type, len(devices), sum(highest) / len(highest)
    if 0 < arguments.eta < 1:
        raise EnvironmentLacks(
            f"{gpu_type} has no highest power limit, with which a cost with eta={arguments.eta:g} "
            "weighs time against energy: say eta=1 (energy alone) or eta=0 (time alone)"
        )
    return gpu_type, len(devices), 1.0


def _limits(
    arguments: SessionArguments, devices: Sequence[Device], limiter: PowerLimiter, how: EnergySource
) -> tuple[float, ...]:
    """The limits that all devices may be given, W, ascending; that in force if none may."""
    common = common_range(devices)
    if common is None or any(device.limits is None for device in devices):
        return ()
    if not limiter.allowed or how == "absent":
        try:
            return (min(device.limit_w() for device in devices),)
        except NotSupported:
            return ()
    if arguments.power_limits_w is None:
        return power_limit_steps(*common)
    for limit_w in arguments.power_limits_w:
        common.check(limit_w)
    return tuple(sorted({float(limit_w) for limit_w in arguments.power_limits_w}))
