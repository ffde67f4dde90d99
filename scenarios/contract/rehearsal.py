"""Puts one policy through a stream of starts and outcomes, and checks all that it decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wattkeeper.policies.points.policy import ZooView
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.views import Configuration, Outcome, Start
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.scenarios.contract.answers import require_type
from wattkeeper.scenarios.contract.breach import require
from wattkeeper.scenarios.contract.json_state import dump_state
from wattkeeper.scenarios.contract.scripted import NEVER, ScriptedContext, job, profile
from wattkeeper.scenarios.contract.scripted_jobs import ScriptedJobs
from wattkeeper.scenarios.contract.scripted_nodes import ScriptedNodes
from wattkeeper.scenarios.contract.scripted_store import ScriptedStore
from wattkeeper.scenarios.contract.steps import Step
from wattkeeper.scenarios.contract.watch import Watch

SIZES: Final[Mapping[int, tuple[float, ...]]] = {
    16: (3.0, NEVER, 4.0),
    32: (3.0, 2.0, NEVER),
    64: (NEVER, 2.0),
    128: (NEVER,),
}
"""Epochs to the target by batch size."""

SILENT: Final = ("observe", "on_submit", "on_end", "on_refuse", "on_use")
"""Methods that answer nothing."""


class Record(NamedTuple):
    """What a policy decided.

    Attributes:
        point: Its decision point.
        decisions: All answers, as text.
        state: Its state at the end, as JSON.
    """

    point: Point
    decisions: list[str]
    state: str


class Rehearsal:
    """Puts one policy through a stream of starts and outcomes, and checks all that it decides.

    Args:
        config: Of the policy; the other decision points are filled with the simplest answers.
        stream: Steps of what happens.
        seed: Of the random streams.
        cut: Before this step, all that is submitted ends if the policy keeps a queue, for that is
            no part of its state.
        restart: Whether the policy is then replaced by a new one with its state.
        stranger: Whether outcomes of a group that never started are thrown in.
        zoo: Models to start from; None: there are none.
        watch: Calls the methods.
        recorded: Attributes of jobs that their log recorded; this value, and up to 10,000 times it.
        told: Whether the policy is told of outcomes (`observe`).

    Attributes:
        decisions: All answers, as text.
        calls: How often the policy was asked or told.

    Raises:
        ContractBreach: If it does what it must not.
    """

    def __init__(
        self,
        config: PolicyConfig,
        stream: Sequence[Step],
        seed: int = 1,
        cut: int | None = None,
        restart: bool = False,
        stranger: bool = False,
        zoo: ZooView | None = None,
        watch: Watch | None = None,
        recorded: Mapping[str, float] = MappingProxyType({}),
        told: bool = True,
    ) -> None:
        self.config = config
        self.decisions: list[str] = []
        self.calls = 0
        self._watch = watch or Watch()
        self._policy = self._build()
        self._ctx = self.context(seed, config=config, refuse=self._watch.refuse)
        if zoo is not None:
            self._ctx.zoo = zoo
        self._stranger, self._told = stranger, told
        self._world = self._make_world(recorded)
        self.go_on(stream[:cut])
        if cut is not None:
            self.drain()
            if restart:
                self.replace_policy(json.loads(self.state))
            self.go_on(stream[cut:])

    @staticmethod
    def context(seed: int = 1, **settings: Any) -> ScriptedContext:
        """A context of the profile that attempts have."""
        return ScriptedContext(profile(runs=SIZES, max_epochs=5), seed, **settings)

    def go_on(self, stream: Sequence[Step]) -> None:
        """Put the policy through more of the stream."""
        for step in stream:
            self._ctx.now_s += 1.0
            if self._stranger:
                self._ask("observe", self._of_a_stranger())
            self._world.step(step)

    def drain(self) -> None:
        """Let all jobs end if the policy keeps a queue."""
        self._world.drain()

    def replace_policy(self, state: dict[str, Any]) -> None:
        """Go on with a new policy, which gets a state."""
        self._policy = self._build()
        self._watch.call("load_state_dict", self._policy.load_state_dict, state)

    def take_state(self) -> dict[str, Any]:
        """The policy's state."""
        taken: dict[str, Any] = self._watch.call("state_dict", self._policy.state_dict)
        require_type(taken, dict, "state_dict")
        return taken

    @property
    def state(self) -> str:
        """The policy's state as JSON."""
        return dump_state(self.take_state())

    def record(self) -> Record:
        """What it decided so far."""
        return Record(self.config.point, self.decisions, self.state)

    def _make_world(
        self, recorded: Mapping[str, float]
    ) -> ScriptedJobs | ScriptedNodes | ScriptedStore:
        if self.config.point == "replan":
            return ScriptedNodes(self._ask)
        if self.config.point == "retain":
            return ScriptedStore(self._ask)
        return ScriptedJobs(self.config, self._ctx, self._ask, recorded, lambda: self.state)

    def _build(self) -> Any:
        return self._watch.call("build", self.config.build)

    def _ask(self, method: str, *views: Any) -> Any:
        if method == "observe" and not self._told:
            return None
        self.calls += 1
        context = () if method in ("retain", "on_use") else (self._ctx,)
        policy = self._policy
        if method == "tune" and self.config.tunes:
            policy = policy.tuner()
        answer = self._watch.call(method, getattr(policy, method), *context, *views)
        if method in SILENT:
            require(answer is None, "answered {!r:.100}; it answers nothing", method, answer)
        else:
            self.decisions.append(_describe(answer))
        return answer

    def _of_a_stranger(self) -> Outcome:
        start = Start(job("stranger/1", group="stranger"), 1, self._ctx.options(), 0)
        return self._ctx.outcome(start, Configuration(32), 250.0)


def _describe(answer: object) -> str:
    """An answer as text; of jobs, their ids."""
    if not isinstance(answer, Selection) or {type(answer.start), type(answer.preempt)} != {tuple}:
        return repr(answer)
    started, preempted = (
        [getattr(job, "job_id", job) for job in jobs] for jobs in (answer.start, answer.preempt)
    )
    return f"Selection({started!r}, {preempted!r})"
