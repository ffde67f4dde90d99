"""Profiles as a scenario wants them: a fixed number of epochs, limits between the recorded ones."""

from __future__ import annotations

from wattkeeper.policies.planning.interpolation import interpolate_limits
from wattkeeper.policies.profile import UNLIMITED_W, Profile
from wattkeeper.scenarios.spec.sections.workload import ReplayedWorkload


def adjust_profile(profile: Profile, workload: ReplayedWorkload) -> Profile:
    """The profile with the epochs and the power limits that a workload states."""
    curves = dict(profile.curves)
    if workload.interpolate_w is not None:
        curves = {
            size: curve if curve.limits_w == (UNLIMITED_W,)
            else interpolate_limits(curve, workload.interpolate_w)
            for size, curve in curves.items()
        }  # fmt: skip
    if workload.epochs is None:
        return profile._replace(curves=curves)
    epochs = (float(workload.epochs),)
    curves = {size: curve._replace(epochs=epochs) for size, curve in curves.items()}
    return profile._replace(curves=curves, max_epochs=workload.epochs)


def run_time_s(profile: Profile) -> float:
    """Expected time of a training at the default batch size and the highest limit, s."""
    curve = profile.curves[profile.default_batch_size]
    return curve.expected_epochs(profile.max_epochs) * curve.epoch(curve.max_limit_w)[0]
