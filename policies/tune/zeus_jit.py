"""Zeus's power limit optimizer: just-in-time profiling, once for each batch size."""

from __future__ import annotations

from typing import Any, Literal

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Measurement, Running, Slice
from wattkeeper.policies.registry import PolicyConfig


class ZeusJit(Tune):
    """See `ZeusJitConfig`."""

    def __init__(self, slices: bool = False) -> None:
        self._slices = slices
        self._limits: dict[str, float] = {}
        self._clocks: dict[str, int] = {}

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The known limit or clock; else the best measured one; else a profile of all."""
        batch_size = running.configuration.batch_size
        key = f"{running.start.learning_key}/{batch_size}"
        options = running.start.options
        limits, clocks = options.limits(batch_size)[::-1], options.clocks(batch_size)
        if self._slices and key not in self._limits and len(running.measured) < len(limits):
            return Knobs(slice=Slice(limits[len(running.measured)]))
        if running.measured and key not in self._limits:
            best = _cheapest(ctx.objective.eta, running)
            self._limits[key] = best.power_limit_w
            if best.clock_mhz:
                self._clocks[key] = best.clock_mhz
        if key in self._limits:
            return Knobs(self._limits[key], clock_mhz=self._clocks.get(key))
        return Knobs(profile_w=limits, profile_mhz=clocks[::-1])

    def state_dict(self) -> dict[str, Any]:
        """Chosen limits in W, and chosen clocks in MHz, if there are any."""
        state: dict[str, Any] = {"limits": dict(self._limits)}
        return state | {"clocks": dict(self._clocks)} if self._clocks else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._limits = dict(state["limits"])
        self._clocks = dict(state.get("clocks", {}))


class ZeusJitConfig(PolicyConfig):
    """Zeus's just-in-time profiling: all power limits when a group first runs a batch size.

    Afterwards the limit with the smallest cost per epoch is used; a tie goes to the higher limit.
    The cost is computed with the highest limit of the batch size (Zeus, NSDI '23, section 4.2).
    Where a profile has locked clocks, too, which is no part of the paper, these are profiled with
    the limits, and the cheapest of all is used; a tie goes to a limit.
    """

    kind: Literal["zeus-jit"] = "zeus-jit"
    policy = ZeusJit
    plain = "Zeus's power limit"
    profile: Literal["epoch", "slices"] = "epoch"
    """Whether the limits share the first epoch, as published, or are measured in slices of at least
    20 steps and 2 s each, which is no part of the paper: locked clocks are left out then."""

    @property
    def slices(self) -> bool:
        """Whether limits are measured in slices."""
        return self.profile == "slices"

    def build(self) -> ZeusJit:
        """Build the policy."""
        return ZeusJit(self.slices)


def _cheapest(eta: float, running: Running) -> Measurement:
    highest = max(running.measured).power_limit_w * running.start.options.gpus
    return min(
        sorted(running.measured, key=lambda m: (not m.clock_mhz, *m), reverse=True),
        key=lambda m: (eta * m.average_power_w + (1 - eta) * highest) * m.time_per_epoch_s,
    )
