"""Asks policies about an attempt: the one path of simulated runs, live runs and sessions.

`DecisionMaker.decide` asks `Configure`, and `Tune` where the configuration leaves the power limit
open; the answer is `Tuned`, or `Untuned` if `Tune` wants power limits measured first. Then
`DecisionMaker.tune` passes on what was measured. Once the attempt ended, `Tuned.outcome` makes the
`Outcome` for `DecisionMaker.observe`. The decided attempts are immutable values, so that a caller
may keep them in memory or restore them from a store.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from mypy_extensions import mypyc_attr

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import explain_failure, is_foreign
from wattkeeper.policies.protocols import (
    Configuration,
    Configure,
    Context,
    Job,
    Knobs,
    Measurement,
    Outcome,
    Policy,
    Running,
    Start,
    Tune,
    ZooView,
)
from wattkeeper.sim.attempts.attempt import Decision, Tuned, Untuned
from wattkeeper.sim.attempts.validation import (
    check_configuration,
    check_knobs,
    check_query,
    check_types_of_configuration,
    check_types_of_knobs,
)

if TYPE_CHECKING:
    import numpy as np

    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.policies.registry import Point, PolicyConfig


class Timed(Protocol):
    """What knows the time of a run."""

    @property
    def now(self) -> float:
        """Time since the run began, s."""


class Moment(NamedTuple):
    """One time, s, at which all that is asked is asked."""

    now: float


class PolicyContext:
    """See `wattkeeper.policies.protocols.Context`; one for each policy.

    Args:
        point: The policy's decision point.
        config: Its config.
        env: The environment of the run, or something else that has its time.
        objective: What a job costs.
        zoo: Models to start from.
        stream_of: A new random stream by decision point and name (`RandomStreams.policy`).
        foresight: The profile that an attempt will be replayed from; it is only asked for a policy
            that declares foresight. None: there is none.

    Attributes:
        point: The policy's decision point.
    """

    def __init__(
        self,
        point: Point,
        config: PolicyConfig,
        env: Timed,
        objective: Objective,
        zoo: ZooView,
        stream_of: Callable[[Point, str], np.random.Generator],
        foresight: Callable[[Start], Profile] | None = None,
    ) -> None:
        self.objective = objective
        self.zoo = zoo
        self.point = point
        self._config = config
        self._env = env
        self._stream_of = stream_of
        self._foresight = foresight
        self._streams: dict[str, np.random.Generator] = {}

    @property
    def policy(self) -> str:
        """The policy as messages name it."""
        return f"the {self.point} policy {self._config.kind!r}"

    @property
    def now_s(self) -> float:
        """See `wattkeeper.policies.protocols.Context`."""
        return self._env.now

    def rng(self, name: str) -> np.random.Generator:
        """See `wattkeeper.policies.protocols.Context`."""
        if name not in self._streams:
            self._streams[name] = self._stream_of(self.point, name)
        return self._streams[name]

    def explain_failure(
        self, error: BaseException, method: Callable[..., Any], about: str
    ) -> BaseException:
        """The error to raise in place of one that a method of the policy raised.

        `about` names the job. See `wattkeeper.policies.failures.explain_failure`.
        """
        at = f" for {about}" if about else ""
        return explain_failure(self._config, error, method, f"{at} at {self.now_s:.12g} s")

    def foresight(self, start: Start) -> Profile:
        """See `wattkeeper.policies.protocols.Context`."""
        if not self._config.needs_foresight or self._foresight is None:
            raise PolicyError(f"{self.policy} declares no foresight", self.point)
        return self._foresight(start)


@mypyc_attr(allow_interpreted_subclasses=True)
class DecisionJournal:
    """Takes down what policies decide."""

    @abstractmethod
    def note(
        self,
        now_s: float,
        point: Point,
        job: Job,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """Take down a decision about an attempt of a job.

        It was made at `now_s`, s. `saw` is what the policy was shown; its `repr` is the same in
        every run.
        """


class Engaged(NamedTuple):
    """A policy of a run, and the context that it is asked with."""

    policy: Any
    ctx: PolicyContext

    @property
    def is_foreign(self) -> bool:
        """Whether the types of its answers are checked."""
        return is_foreign(type(self.policy))


class DecisionMaker:
    """Asks the policies of a run about attempts, and tells them what came of these.

    Args:
        configure: The `Configure` policy.
        tune: The `Tune` policy.
        journal: Takes down their decisions.
        others: Other policies that are told of jobs and outcomes, before these two.
        notes_parents: Whether `Configure` sets parents, which the journal shows then.
    """

    def __init__(
        self,
        configure: Engaged,
        tune: Engaged,
        journal: DecisionJournal,
        others: Iterable[Engaged] = (),
        notes_parents: bool = False,
    ) -> None:
        self._configure: Configure = configure.policy
        self._configure_ctx = configure.ctx
        self._checks_configure = configure.is_foreign
        self._tune: Tune = tune.policy
        self._tune_ctx = tune.ctx
        self._checks_tune = tune.is_foreign
        self._journal = journal
        self._notes_parents = notes_parents
        policies = (*others, configure, tune)
        self._observers: list[tuple[Callable[[Context, Outcome], None], PolicyContext]] = [
            (policy.observe, ctx) for policy, ctx in policies
            if type(policy).observe is not Policy.observe
        ]  # fmt: skip
        self._followers: list[tuple[Callable[[Context, Job], None], PolicyContext]] = [
            (policy.on_submit, ctx) for policy, ctx in policies
            if type(policy).on_submit is not Policy.on_submit
        ]  # fmt: skip

    def submitted(self, job: Job) -> None:
        """Tell the policies of a job that was submitted."""
        for submitted, ctx in self._followers:
            try:
                submitted(ctx, job)
            except BaseException as error:
                raise ctx.explain_failure(error, submitted, f"job {job.job_id}") from None

    def observe(self, outcome: Outcome) -> None:
        """Let the policies learn from an attempt that ended."""
        for observe, ctx in self._observers:
            try:
                observe(ctx, outcome)
            except BaseException as error:
                about = f"job {outcome.start.job.job_id}"
                raise ctx.explain_failure(error, observe, about) from None

    def decide(self, start: Start) -> Decision:
        """Ask how an attempt shall run, and at which power limit or with which to be measured.

        Raises:
            PolicyError: If a policy chose what is not allowed; the message says what is.
        """
        configuration = self._ask_configure(start)
        batch_size, limit_w, bound = configuration[:3]
        chose = f"batch_size={batch_size} power_limit_w={limit_w} cost_bound={bound!r}"
        if self._notes_parents:
            chose += f" {_format_parent(configuration)}"
        saw = (start.options.key, start.group_in_flight)
        self._note(self._configure_ctx, "configure", start, saw, chose)
        check_configuration(start, configuration)
        if limit_w is not None:
            return Tuned(start, configuration, limit_w, False)
        return self._first_limits(start, configuration)

    def choose_parent(self, start: Start) -> Configuration:
        """Ask for the parent of a job without a workload: there is nothing else to choose.

        Raises:
            PolicyError: If the time that the choice takes is not finite.
        """
        configuration = self._ask_configure(start)
        chose = _format_parent(configuration)
        self._note(self._configure_ctx, "configure", start, (start.options.key,), chose)
        check_query(start.job, configuration.query_s)
        return configuration

    def tune(self, attempt: Untuned, report: tuple[Measurement, ...]) -> Tuned:
        """Ask `Tune` for the power limit, given what was measured at each.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        start, configuration = attempt.start, attempt.configuration
        limit_w = cast("float", self._ask_tune(start, configuration, report).power_limit_w)
        return Tuned(start, configuration, limit_w, True)

    def choose_limit(self, start: Start) -> float:
        """Ask `Tune` for the power limit of a job without a workload, W.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        configuration = Configuration(start.options.default_batch_size)
        return cast("float", self._ask_tune(start, configuration, (), final=True).power_limit_w)

    def repeat(self, lost: Decision) -> Decision:
        """Decide on the next attempt of a job as on one that was lost to an accident.

        `Tune` is asked again if no power limit was chosen for that one.

        Raises:
            PolicyError: If it chose what is not allowed; the message says what is.
        """
        start = lost.start._replace(attempt=lost.start.attempt + 1)
        if isinstance(lost, Tuned):
            return Tuned(start, lost.configuration, lost.power_limit_w, lost.profiled)
        return self._first_limits(start, lost.configuration)

    def _ask_configure(self, start: Start) -> Configuration:
        try:
            configuration = self._configure.configure(self._configure_ctx, start)
            if self._checks_configure:
                check_types_of_configuration(configuration)
        except BaseException as error:
            about, method = f"job {start.job.job_id}", self._configure.configure
            raise self._configure_ctx.explain_failure(error, method, about) from None
        return configuration

    def _first_limits(self, start: Start, configuration: Configuration) -> Decision:
        knobs = self._ask_tune(start, configuration, ())
        if knobs.power_limit_w is not None:
            return Tuned(start, configuration, knobs.power_limit_w, False)
        return Untuned(start, configuration, knobs.profile_w)

    def _ask_tune(
        self,
        start: Start,
        configuration: Configuration,
        report: tuple[Measurement, ...],
        *,
        final: bool = False,
    ) -> Knobs:
        try:
            knobs = self._tune.tune(self._tune_ctx, Running(start, configuration, report))
            if self._checks_tune:
                check_types_of_knobs(knobs)
        except BaseException as error:
            about = f"job {start.job.job_id}"
            raise self._tune_ctx.explain_failure(error, self._tune.tune, about) from None
        limit_w, profile_w = knobs
        batch_size = configuration.batch_size
        chose = f"profile_w={list(profile_w)}" if profile_w else f"power_limit_w={limit_w}"
        saw = (start.options.key, batch_size, report)
        self._note(self._tune_ctx, "tune", start, saw, chose)
        check_knobs(start, batch_size, knobs, final or bool(report))
        return knobs

    def _note(
        self, ctx: Context, point: Point, start: Start, saw: tuple[object, ...], chose: str
    ) -> None:
        self._journal.note(ctx.now_s, point, start.job, start.attempt, saw, chose)


def _format_parent(configuration: Configuration) -> str:
    return f"parent={configuration.parent} query_s={configuration.query_s:g}"
