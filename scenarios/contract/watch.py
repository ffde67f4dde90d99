"""Calls the methods of a policy, and notices when it changes what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Start
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.signals import SignalView
from wattkeeper.scenarios.contract.breach import ContractBreach
from wattkeeper.scenarios.contract.scripted import scripted_signal
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.kernel.clock import FixedTime

if TYPE_CHECKING:
    import numpy as np

CHANGED: Final = "changes what it is shown"
UNDECLARED: Final = "{}, which its config does not declare: say {} there"


class Watch:
    """Calls the methods of a policy, and refuses that it changes what it is shown."""

    def call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method, which is called `name` in messages."""
        shown = show(arguments)
        answer = method(*arguments)
        if show(arguments) != shown:
            self.refuse(CHANGED, name)
        return answer

    def refuse(self, message: str, method: str = "") -> None:
        """Refuse what a policy did.

        Raises:
            ContractBreach: Always; a subclass may note it instead.
        """
        raise ContractBreach(message, method)


class WatchedContext:
    """The context of a policy in a world, which notices what the config does not declare.

    Args:
        config: The policy's config.
        refuse: Called with a message about what it does not declare.
        profiles: What a policy with foresight gets, and must not change.
    """

    __slots__ = ("_config", "_profiles", "_refuse", "_world", "now_s", "objective", "zoo")

    def __init__(
        self, config: PolicyConfig, refuse: Callable[[str], None], profiles: Mapping[Any, Profile]
    ) -> None:
        self._config = config
        self._refuse = refuse
        self._profiles = profiles

    def follow(self, ctx: Context) -> None:
        """Show what the context of the world shows now."""
        self._world = ctx
        self.now_s, self.objective, self.zoo = ctx.now_s, ctx.objective, ctx.zoo

    @property
    def shown(self) -> tuple[object, ...]:
        """What changes if the policy changes it."""
        foreseen = self._profiles if self._config.needs_foresight else None
        return self.now_s, self.objective, self.zoo, foreseen

    def rng(self, name: str) -> np.random.Generator:
        """See `wattkeeper.policies.points.policy.Context`."""
        if not self._config.draws:
            self._refuse(UNDECLARED.format("draws at random (ctx.rng)", "`draws = True`"))
        return self._world.rng(name)

    def foresight(self, start: Start) -> Profile:
        """See `wattkeeper.policies.points.policy.Context`."""
        if not self._config.needs_foresight:
            self._refuse(UNDECLARED.format("asks for foresight", "`needs_foresight = True`"))
            return next(iter(self._profiles.values()))
        return self._world.foresight(start)

    def signal(self, name: str) -> SignalView:
        """See `wattkeeper.policies.points.policy.Context`."""
        if name not in self._config.signals:
            self._refuse(UNDECLARED.format(f"reads the signal {name!r}", "it in `signals`"))
            return scripted_signal(name).view(FixedTime(self.now_s))
        return self._world.signal(name)


def show(arguments: Sequence[Any]) -> str:
    """All that a policy sees, as text that changes with it."""
    inside: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Cluster):
            shared = [dict(argument.shared(node)) for node in range(argument.spec.nodes)]
            inside.append((argument.free.tolist(), shared))
        elif isinstance(argument, WatchedContext):
            inside.append(argument.shown)
    return repr((arguments, inside))
