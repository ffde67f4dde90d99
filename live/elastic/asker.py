"""Asks the `Replan` policy of a live training, at the moments of a simulated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from wattkeeper.live.elastic.records import ReplanDecision
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import EmptyZoo
from wattkeeper.policies.points.replan import ElasticView, Reshape
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig, build_policy
from wattkeeper.sim.elastic.asking import ask_replan, describe_answer, seen_of
from wattkeeper.sim.kernel.context import PolicyContext
from wattkeeper.sim.kernel.streams import NamedStreams


class RunTime(NamedTuple):
    """The time of a training as policies see it: that of a clock, s."""

    read_s: Callable[[], float]

    @property
    def now_s(self) -> float:
        """Time since the training began, s."""
        return self.read_s()


class ReplanAsker:
    """See the module.

    Args:
        config: Config of the policy.
        now_s: Time since the training began, s.

    Attributes:
        decisions: What was decided.

    Raises:
        PolicyError: If the policy reads what a live training does not have.
    """

    def __init__(self, config: PolicyConfig, now_s: Callable[[], float]) -> None:
        if config.signals or config.needs_foresight:
            raise PolicyError(
                f"the replan policy {config.kind!r} needs signals or foresight, which an elastic "
                "training on this host does not have: choose another one",
                "replan",
            )
        self._policy = build_policy(config)
        self._ctx = PolicyContext(
            config.point, config, RunTime(now_s), Objective(1.0), EmptyZoo(), NamedStreams(0).policy
        )
        self.decisions: list[ReplanDecision] = []

    def ask(self, view: ElasticView) -> Reshape | None:
        """The answer of the policy; None only about nodes that it does not take up.

        Raises:
            PolicyError: If it is none for the nodes.
        """
        answer = ask_replan(self._policy, self._ctx, view)
        saw, chose = repr(seen_of(view)), describe_answer(answer)
        self.decisions.append(ReplanDecision(self._ctx.now_s, saw, chose))
        return answer
