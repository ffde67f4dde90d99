"""Asks the `Replan` policy of a live training, at the moments of a simulated one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from wattkeeper.live.elastic.records import ReplanDecision
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.replan import ElasticView, Reshape
from wattkeeper.policies.points.views import Outcome, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.sim.attempts.attempt import without_choices
from wattkeeper.sim.elastic.asking import ask_replan, describe_answer, seen_of
from wattkeeper.sim.kernel.clock import ElapsedTime
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.streams import NamedStreams

ELASTIC: Final = Capabilities("an elastic training on this host")
"""What such a training offers to policies."""


class ReplanAsker:
    """See the module.

    Args:
        job: Name of the training.
        config: Config of the policy.
        now_s: Time since the training began, s.

    Attributes:
        decisions: What was decided.

    Raises:
        PolicyError: If the policy reads what a live training does not have.
    """

    def __init__(self, job: str, config: PolicyConfig, now_s: Callable[[], float]) -> None:
        self._job = Job(job, job, 1, None, 1, 0.0)
        self._host = Host(ELASTIC, ElapsedTime(now_s), Objective(1.0), NamedStreams(0))
        self._replan = self._host.engage(config)
        self._host.submitted(self._job)
        self.decisions: list[ReplanDecision] = []

    def ask(self, view: ElasticView) -> Reshape | None:
        """The answer of the policy; None only about nodes that it does not take up.

        Raises:
            PolicyError: If it is none for the nodes.
        """
        answer = ask_replan(self._replan, view)
        saw, chose = repr(seen_of(view)), describe_answer(answer)
        self.decisions.append(ReplanDecision(self._replan.ctx.now_s, saw, chose))
        return answer

    def end(self, steps_s: float) -> None:
        """Let the policy learn that the training is done, after a time in steps; see `Outcome`."""
        start = Start(self._job, 1, without_choices(self._job, "", math.nan), 0)
        self._host.observe(Outcome(start, 0, math.nan, 0, steps_s, math.nan, math.nan, True))
