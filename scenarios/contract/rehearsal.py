"""Puts one policy through a stream of steps in a simulated world, and checks its decisions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from typing_extensions import override

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Outcome, Running, Start
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig
from wattkeeper.scenarios.contract import answers
from wattkeeper.scenarios.contract.breach import ContractBreach, require
from wattkeeper.scenarios.contract.json_state import dump_state
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.scenarios.contract.steps import Step
from wattkeeper.scenarios.contract.watch import Watch, WatchedContext
from wattkeeper.scenarios.contract.worlds import PROFILES, script_world
from wattkeeper.sim.kernel.loop import Callback, schedule_at
from wattkeeper.sim.replay.backend import options_of

OPTIONS: Final = options_of(next(iter(PROFILES.values())))
"""What may be chosen for a job of one GPU."""
MOST_SELECTIONS: Final = 1_000
"""At one time."""
KEPT: Final = ("state_dict", "load_state_dict", "tuner")
"""Methods that a world does not call, or that are passed on otherwise."""


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
    """Puts one policy through a stream of steps in a world, and checks all that it decides.

    Args:
        config: Of the policy; the other decision points have the simplest policies.
        stream: What happens.
        seed: Of the random streams.
        cut: Before this step, all that is submitted ends if the policy keeps a queue, for that is
            no part of its state.
        restart: Whether the policy is then replaced by a new one with its state.
        stranger: Whether outcomes of a group that never started are thrown in.
        watch: Calls the methods.
        recorded: Attributes of jobs that their log recorded; this value, and up to 10,000 times it.
        told: Whether the policy is told of outcomes (`observe`).
        at_step: Called with the rehearsal and the number of each step, before it happens, and with
            the number of all steps at the end.

    Attributes:
        decisions: All answers, as text.
        calls: How often each method was called.

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
        watch: Watch | None = None,
        recorded: Mapping[str, float] = MappingProxyType({}),
        told: bool = True,
        at_step: Callable[[Rehearsal, int], None] = lambda _, step: None,
    ) -> None:
        self.config = config
        self.decisions: list[str] = []
        self.calls = Counter[str]()
        self._watch = watch or Watch()
        self._policy = self._build()
        self._ctx = WatchedContext(config, self._watch.refuse, PROFILES)
        self._stranger, self._told, self._at_step = stranger, told, at_step
        self._restart_at = cut if restart else None
        self._selected_s, self._selections = -1.0, 0
        stand_in = config.model_copy()
        stand_in.__dict__["build"] = lambda: _stand_in(config.point, self._ask)
        world, times_s = script_world(stand_in, stream, seed, cut, recorded)
        for step, time_s in enumerate(times_s):
            schedule_at(world.env, time_s, Callback(self._step, step))
        try:
            world.run()
        except PolicyError as error:
            raise ContractBreach(str(error), config.point) from error
        at_step(self, len(stream))

    def replace_policy(self, state: dict[str, Any]) -> None:
        """Go on with a new policy, which gets a state."""
        self._policy = self._build()
        self._watch.call("load_state_dict", self._policy.load_state_dict, state)

    def take_state(self) -> dict[str, Any]:
        """The policy's state."""
        taken: dict[str, Any] = self._watch.call("state_dict", self._policy.state_dict)
        answers.require_type(taken, dict, "state_dict")
        return taken

    @property
    def state(self) -> str:
        """The policy's state as JSON."""
        return dump_state(self.take_state())

    def record(self) -> Record:
        """What it decided so far."""
        return Record(self.config.point, self.decisions, self.state)

    def _build(self) -> Any:
        return self._watch.call("build", self.config.build)

    def _step(self, step: int) -> None:
        if self._stranger and self.calls:
            start = Start(job("stranger/1", group="stranger"), 1, OPTIONS, 0)
            told = Outcome(start, 32, 250.0, 6, 60.0, 9000.0, 12000.0, True)
            self._watch.call("observe", self._policy.observe, self._ctx, told)
        if step == self._restart_at:
            self.replace_policy(json.loads(self.state))
        self._at_step(self, step)

    def _ask(self, method: str, *views: Any) -> Any:
        if method == "observe" and not self._told:
            return None
        self.calls[method] += 1
        if method not in ("retain", "on_use"):
            self._ctx.follow(views[0])
            views = (self._ctx, *views[1:])
        tunes = method == "tune" and self.config.tunes
        policy = self._policy.tuner() if tunes else self._policy
        state = self.state if method == "place" else ""
        answer = self._watch.call(method, getattr(policy, method), *views)
        if method == "observe" or method.startswith("on_"):
            require(answer is None, "answered {!r:.100}; it answers nothing", method, answer)
            return None
        self._check(method, views, answer)
        if method == "place":
            what = "changes the state, although it is also asked hypothetically"
            require(self.state == state, what, "place")
        self.decisions.append(_describe(answer))
        return answer

    def _check(self, method: str, views: tuple[Any, ...], answer: Any) -> None:
        if method == "configure":
            answers.check_configuration(views[1], answer)
        elif method == "tune":
            answers.check_knobs(views[1], answer)
        elif method == "place":
            answers.check_placement(views[1], views[2], answer)
        elif method == "replan":
            answers.check_reshape(answer)
        elif method == "retain":
            answers.check_retention(answer)
        elif method == "wake_s":
            later = answers.is_plain(answer) and answer > self._ctx.now_s
            what = "answered {!r} at {:g} s; needed: a later time"
            require(later, what, "wake_s", answer, self._ctx.now_s)
        else:
            answers.check_selection(answer)
            now_s = self._ctx.now_s
            self._selections = self._selections + 1 if now_s == self._selected_s else 0
            self._selected_s = now_s
            what = "starts and preempts {:,} times at one time, and has not come to an end"
            require(self._selections < MOST_SELECTIONS, what, "select", MOST_SELECTIONS)


class _TuneStandIn(Tune):
    """The part of a `Configure` policy that decides at `Tune`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    @override
    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        knobs: Knobs | None = self._ask("tune", ctx, running)
        return knobs


def _stand_in(point: Point, ask: Callable[..., Any]) -> Any:
    """A policy of a decision point that passes on all that it is asked or told."""
    base = POINTS[point].base
    names = [name for name in dir(base) if not name.startswith("_") and name not in KEPT]
    methods = {name: _pass_on(name, ask) for name in names}
    return type("StandIn", (base,), methods | {"tuner": lambda _: _TuneStandIn(ask)})()


def _pass_on(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *views: ask(name, *views)


def _describe(answer: object) -> str:
    """An answer as text; of jobs, their ids."""
    if not isinstance(answer, Selection):
        return repr(answer)
    started, preempted = (
        [getattr(job, "job_id", job) for job in jobs] for jobs in (answer.start, answer.preempt)
    )
    return f"Selection({started!r}, {preempted!r})"
