"""Zeus's power limit optimizer: just-in-time profiling, once for each batch size."""

from typing import Any, ClassVar, Literal

from wattkeeper.policies.protocols import Context, Knobs, Running, Tune
from wattkeeper.policies.registry import Point, PolicyConfig


class ZeusJit(Tune):
    """See `ZeusJitConfig`."""

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The known limit; else the best measured limit; else a profile of all limits."""
        batch_size = running.configuration.batch_size
        key = f"{running.start.learning_key}/{batch_size}"
        if running.measured and key not in self._limits:
            self._limits[key] = _cheapest(ctx.objective.eta, running)
        if key in self._limits:
            return Knobs(self._limits[key])
        limits = running.start.options.limits(batch_size)
        return Knobs(profile_w=limits[::-1])

    def state_dict(self) -> dict[str, Any]:
        """Chosen limits in W."""
        return {"limits": dict(self._limits)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._limits = dict(state["limits"])


class ZeusJitConfig(PolicyConfig):
    """Zeus's just-in-time profiling: all power limits when a group first runs a batch size.

    Afterwards the limit with the smallest cost per epoch is used; a tie goes to the higher limit.
    The cost is computed with the highest limit of the batch size (Zeus, NSDI '23, section 4.2).
    """

    point: ClassVar[Point] = "tune"
    kind: Literal["zeus-jit"] = "zeus-jit"
    policy = ZeusJit


def _cheapest(eta: float, running: Running) -> float:
    highest = max(running.measured).power_limit_w * running.start.options.gpus
    best = min(
        sorted(running.measured, reverse=True),
        key=lambda m: (eta * m.average_power_w + (1 - eta) * highest) * m.time_per_epoch_s,
    )
    return best.power_limit_w
