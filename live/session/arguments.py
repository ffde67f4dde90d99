"""What a script says of its training, and the guide that is made from it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from wattkeeper.live.session import distributed
from wattkeeper.live.wire.client import LINK
from wattkeeper.policies.errors import (
    EnvironmentLacks,
    InputError,
    NotSupported,
    Problem,
)

if TYPE_CHECKING:
    from wattkeeper.live.devices.device import Device
    from wattkeeper.live.wire.messages import Coordinator
    from wattkeeper.policies.registry import PolicyConfig

RECORDING: Final = "WATTKEEPER_RECORDING"
STEP_W: Final = 25.0
"""Between the power limits that are tried (Zeus, NSDI '23, section 6.1)."""


class PowerControl(Protocol):
    """What the limiter says."""

    allowed: bool
    why: str


class SessionArguments(NamedTuple):
    """The arguments of `wattkeeper.live.session.session.Session`."""

    job: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    max_epochs: int
    target: float | None
    higher_is_better: bool
    eta: float
    configure: str | PolicyConfig
    tune: str | PolicyConfig
    power_limits_w: tuple[float, ...] | None
    store: str | Path | None
    lease_s: float

    def check(self) -> None:
        """Refuse what makes no sense, all of it at once.

        Raises:
            InputError: With a problem for each.
        """
        sizes = ", ".join(map(str, self.batch_sizes)) or "none"
        target = 0.0 if self.target is None else self.target
        wrong = [
            (not self.job.strip(), "found no name; give the job one, job='nightly-cnn'"),
            (
                not self.batch_sizes or min(self.batch_sizes) < 1,
                f"found the batch sizes {sizes}; at least one is needed, and all above 0",
            ),
            (
                self.default_batch_size not in self.batch_sizes,
                f"found the default batch size {self.default_batch_size}; allowed: {sizes}",
            ),
            (self.max_epochs < 1, f"found max_epochs={self.max_epochs}; must be at least 1"),
            (not math.isfinite(target), f"found the target {self.target}; must be finite"),
            (not 0 <= self.eta <= 1, f"found eta={self.eta}; must be from 0 (time) to 1 (energy)"),
            (not 0 < self.lease_s < math.inf, f"found lease_s={self.lease_s}; must be above 0"),
            (
                self.power_limits_w is not None and not all(w > 0 for w in self.power_limits_w),
                f"found power_limits_w={self.power_limits_w}; all must be above 0",
            ),
        ]
        if problems := [Problem(message) for found, message in wrong if found]:
            raise InputError(problems)


def is_linked() -> bool:
    """Whether a controller started this process."""
    return bool(os.environ.get(LINK))


def guide_of(
    terms: SessionArguments, devices: Sequence[Device], limiter: PowerControl, how: str
) -> Coordinator:
    """Who tells a session what to do: who records it or controls it, else the policies.

    Args:
        terms: What the script says.
        devices: Those of this process.
        limiter: Whether power limits can be set.
        how: Where energy is from; `absent` if nothing measures it.

    Raises:
        InputError: If a policy or a power limit is not there.
        PolicyError: If a policy cannot be asked live.
        EnvironmentLacks: If the cost counts what nothing measures, or the store, or the
            controller, cannot be reached.
    """
    if is_linked():
        from wattkeeper.live.wire.client import guide_from_environment

        linked: Coordinator = guide_from_environment()
        return linked
    if not distributed.leads():
        return distributed.FollowerCoordinator()
    if os.environ.get(RECORDING):
        from wattkeeper.live.session.recording_coordinator import RecordingCoordinator

        return RecordingCoordinator(Path(os.environ[RECORDING]), terms, devices, limiter, how)
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
    from wattkeeper.live.session.policy_host import JobPlan, config_of

    gpu_type, gpus, max_power_w = _hardware(terms, devices, how)
    plan = JobPlan(
        job=terms.job,
        batch_sizes=tuple(sorted(set(terms.batch_sizes))),
        default_batch_size=terms.default_batch_size,
        max_epochs=terms.max_epochs,
        target=terms.target,
        higher_is_better=terms.higher_is_better,
        eta=float(terms.eta),
        gpu_type=gpu_type,
        gpus=gpus,
        limits_w=_limits(terms, devices, limiter, how),
        max_power_w=max_power_w,
        configure=config_of("configure", terms.configure),
        tune=config_of("tune", terms.tune),
    )
    if len(plan.limits_w) > 1:
        plan.tune.check(plan.options)
    plan.configure.check(plan.options)
    return LocalCoordinator(SessionStore(terms.store), plan, terms.lease_s)


def _hardware(
    terms: SessionArguments, devices: Sequence[Device], how: str
) -> tuple[str, int, float]:
    """Type and number of the devices, and what the cost counts a second of one with, W."""
    if how == "absent" and terms.eta > 0:
        from wattkeeper.live.devices import absent

        raise EnvironmentLacks(
            f"nothing here measures energy, so that no cost with eta={terms.eta:g} is known: say "
            "eta=0, which counts time alone, or see with `wattkeeper doctor` what is missing\n"
            + absent()
        )
    if not devices:
        return "cpu", 1, 1.0
    gpu_type = "+".join(sorted({device.gpu_type for device in devices}))
    highest = [device.limits.highest_w for device in devices if device.limits is not None]
    if len(highest) == len(devices):
        return gpu_type, len(devices), sum(highest) / len(highest)
    if 0 < terms.eta < 1:
        raise EnvironmentLacks(
            f"{gpu_type} has no highest power limit, with which a cost with eta={terms.eta:g} "
            "weighs time against energy: say eta=1 (energy alone) or eta=0 (time alone)"
        )
    return gpu_type, len(devices), 1.0


def stepped(lowest_w: float, highest_w: float) -> tuple[float, ...]:
    """The power limits that are tried, W, ascending: the highest, and what is whole steps below."""
    count = int((highest_w - lowest_w) // STEP_W)
    return tuple(highest_w - STEP_W * below for below in range(count, -1, -1))


def _limits(
    terms: SessionArguments, devices: Sequence[Device], limiter: PowerControl, how: str
) -> tuple[float, ...]:
    """The limits that all devices may be given, W, ascending; that in force if none may."""
    ranges = [device.limits for device in devices if device.limits is not None]
    if not ranges or len(ranges) < len(devices):
        return ()
    if not limiter.allowed or how == "absent":
        try:
            return (min(device.limit_w() for device in devices),)
        except NotSupported:
            return ()
    lowest_w = max(one.lowest_w for one in ranges)
    highest_w = min(one.highest_w for one in ranges)
    if terms.power_limits_w is None:
        return stepped(lowest_w, highest_w)
    for limit_w in terms.power_limits_w:
        if not lowest_w <= limit_w <= highest_w:
            raise InputError(
                f"found the power limit {limit_w:g} W; allowed: {lowest_w:g} to {highest_w:g} W"
            )
    return tuple(sorted({float(limit_w) for limit_w in terms.power_limits_w}))
