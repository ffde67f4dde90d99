"""Calls the methods of a policy, and notices when it changes what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wattkeeper.scenarios.contract.breach import ContractBreach
from wattkeeper.scenarios.contract.scripted import ScriptedContext
from wattkeeper.sim.cluster.cluster import Cluster

CHANGED: Final = "changes what it is shown"


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


def show(arguments: Sequence[Any]) -> str:
    """All that a policy sees, as text that changes with it."""
    inside: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Cluster):
            shared = [dict(argument.shared(node)) for node in range(argument.spec.nodes)]
            inside.append((argument.free.tolist(), shared))
        elif isinstance(argument, ScriptedContext):
            inside.append((argument.now_s, argument.objective, argument.zoo, argument.shown))
    return repr((arguments, inside))
