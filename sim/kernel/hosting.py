"""Hosts the policies of a run, a session or a command.

A `Host` builds a policy, refuses one that needs or declares what the host does not have, gives it
its context, and calls its hooks: the methods by which a policy is told of something, without an
answer (`observe` and all that begin with `on_`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.failures import is_foreign
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.policy import EmptyZoo, ZooView
from wattkeeper.policies.points.views import Outcome, Start, TrialKind
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, build_policy
from wattkeeper.sim.kernel.clock import Clock
from wattkeeper.sim.kernel.context import PolicyContext
from wattkeeper.sim.kernel.journal import DecisionJournal

if TYPE_CHECKING:
    from wattkeeper.policies.profile import Objective, Profile
    from wattkeeper.sim.kernel.signals import SignalSource
    from wattkeeper.sim.kernel.streams import RandomStreams

JOB_HOOKS: Final = frozenset({"on_submit", "observe", "on_loss"})
"""Hooks of all policies that decide on jobs."""


class Capabilities(NamedTuple):
    """What a host offers to its policies; it refuses those that need more.

    Attributes:
        host: The host, as messages name it.
        moments: When `Tune` is asked.
        hooks: The hooks that are called.
        signals: Whether there are signals to read.
        foresight: Whether profiles can be read before they are measured.
        queue: Whether it is known how many jobs wait.
        zoo: Whether there are models to start from.
        slices: Whether `Tune` may ask for slices.
        clocks: Whether clocks can be locked.
        trial: How parents can be tried before one is chosen.
    """

    host: str
    moments: tuple[Moment, ...] = START_MOMENTS
    hooks: frozenset[str] = JOB_HOOKS
    signals: bool = False
    foresight: bool = False
    queue: bool = False
    zoo: bool = False
    slices: bool = False
    clocks: bool = False
    trial: TrialKind = "none"

    def list_unmet(self, config: PolicyConfig) -> list[str]:
        """What a policy needs by its config and the host does not have, in words."""
        known = ", ".join(self.moments)
        unmet = [
            f"the moment {name} (there are {known})"
            for name in config.moments
            if name not in self.moments
        ]
        if not self.signals:
            unmet += [f"the signal {name}" for name in config.signals]
        needs = {
            "foresight (how choices turn out before they are tried)": (
                config.needs_foresight,
                self.foresight,
            ),
            "the queue (how many jobs wait)": (config.sees_queue, self.queue),
            "a zoo of models": (config.sets_parent, self.zoo),
            "slices": (config.slices, self.slices),
            "locked clocks": (config.sets_clocks != "none", self.clocks),
            "trials of parents": (config.trial != "none", self.trial != "none"),
            "training in trials of parents": (config.trial == "trained", self.trial != "evaluated"),
        }
        return unmet + [what for what, (needed, there) in needs.items() if needed and not there]

    def refusal(self, config: PolicyConfig, point: Point, unmet: list[str]) -> PolicyError:
        """The error for a policy that needs what the host does not have."""
        return PolicyError(
            f"the {point} policy {config.kind!r} needs {', '.join(unmet)}, which {self.host} does "
            "not have: choose another policy",
            point,
        )

    def check(self, config: PolicyConfig) -> None:
        """Check what a config declares, before its policy is built.

        Raises:
            PolicyError: If it needs what the host does not have.
        """
        unmet = self.list_unmet(config)
        if unmet:
            raise self.refusal(config, config.point, unmet)

    def admit(self, config: PolicyConfig, policy: Any = None, point: Point | None = None) -> Any:
        """A policy that the host can serve.

        Args:
            config: Its config.
            policy: The policy, if it is built already.
            point: Its decision point, if it is not that of the config.

        Raises:
            PolicyError: If it needs what the host does not have, or its class declares a hook that
                the host does not call.
            PolicyFailed: If it cannot be built.
        """
        self.check(config)
        at: Point = config.point if point is None else point
        policy = build_policy(config) if policy is None else policy
        uncalled = [hook for hook in declared_hooks(policy, at) if hook not in self.hooks]
        if uncalled:
            raise self.refusal(config, at, [f"calls of {hook}" for hook in uncalled])
        return policy


def declared_hooks(policy: object, point: Point) -> list[str]:
    """The hooks of a decision point that a policy's class overrides."""
    base, kind = POINTS[point].base, type(policy)
    hooks = [name for name in dir(base) if name == "observe" or name.startswith("on_")]
    return [name for name in hooks if getattr(kind, name) is not getattr(base, name)]


class BoundPolicy:
    """A policy of a host, and the context that it is asked with.

    Attributes:
        policy: The policy.
        ctx: Its context.
        is_foreign: Whether it, or a part of it, is of another distribution: the types of its
            answers are checked.
    """

    def __init__(self, policy: Any, ctx: PolicyContext) -> None:
        self.policy = policy
        self.ctx = ctx
        self.is_foreign: bool = is_foreign(type(policy)) or ctx.is_foreign

    def tell(self, hook: Callable[[Any, Any], None], subject: Job | Start | Outcome) -> None:
        """Call a hook of the policy with what it is about.

        Raises:
            PolicyFailed: If the policy fails.
        """
        try:
            hook(self.ctx, subject)
        except BaseException as error:
            about = f"job {_job_of(subject).job_id}"
            raise self.ctx.explain_failure(error, hook, about) from None


def _job_of(subject: Job | Start | Outcome) -> Job:
    if isinstance(subject, Outcome):
        return subject.start.job
    return subject.job if isinstance(subject, Start) else subject


class Host:
    """Builds, binds and tells the policies of a run, a session or a command.

    Args:
        capabilities: What it offers to them.
        clock: The time, as they see it.
        objective: What a job costs.
        streams: Their random streams.
        journal: Learns which policies decide; None: nothing is taken down.
        signals: By name.
        zoo: Models to start from.
        foresight: The profile that an attempt will be replayed from; None: there is none.
        suffix: Added to the names of their random streams.

    Attributes:
        observes: Whether any policy is told of outcomes.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        clock: Clock,
        objective: Objective,
        streams: RandomStreams,
        journal: DecisionJournal | None = None,
        signals: Mapping[str, SignalSource] = MappingProxyType({}),
        zoo: ZooView | None = None,
        foresight: Callable[[Start], Profile] | None = None,
        suffix: str = "",
    ) -> None:
        self._capabilities = capabilities
        self._clock = clock
        self._objective = objective
        self._streams = streams
        self._journal = journal
        self._signals = signals
        self._zoo: ZooView = EmptyZoo() if zoo is None else zoo
        self._foresight = foresight
        self._suffix = suffix
        self.observes = False
        self._told_of_submissions: list[tuple[Callable[[Any, Any], None], BoundPolicy]] = []
        self._told_of_outcomes: list[tuple[Callable[[Any, Any], None], BoundPolicy]] = []
        self._told_of_losses: list[tuple[Callable[[Any, Any], None], BoundPolicy]] = []

    def engage(
        self, config: PolicyConfig, policy: Any = None, point: Point | None = None
    ) -> BoundPolicy:
        """A policy of the host, whose hooks are called from now on; see `Capabilities.admit`."""
        at: Point = config.point if point is None else point
        policy = self._capabilities.admit(config, policy, at)
        if self._journal is not None:
            self._journal.add_maker(at, config.kind)
        bound = self.bind(config, policy, at)
        for hook in declared_hooks(policy, at):
            if hook == "on_submit":
                self._told_of_submissions.append((policy.on_submit, bound))
            elif hook == "observe":
                self._told_of_outcomes.append((policy.observe, bound))
                self.observes = True
            elif hook == "on_loss":
                self._told_of_losses.append((policy.on_loss, bound))
        return bound

    def engage_tune(self, configure: BoundPolicy, config: PolicyConfig) -> BoundPolicy:
        """The policy that is asked at `Tune`: of its own config, or the part of `Configure`.

        `config` is that of `Configure` itself where this stands there, too (`tunes`).
        """
        tuner = configure.policy.tuner() if config.tunes else None
        return self.engage(config, tuner, "tune")

    def bind(
        self, config: PolicyConfig, policy: Any, point: Point, suffix: str = ""
    ) -> BoundPolicy:
        """A policy with a context, which the host tells of nothing. See `engage`.

        `suffix`: added to the names of its random streams, before that of the host.
        """
        return BoundPolicy(
            policy,
            PolicyContext(
                point,
                config,
                self._clock,
                self._objective,
                self._zoo,
                self._streams.policy,
                suffix + self._suffix,
                self._foresight,
                self._signals,
            ),
        )

    def submitted(self, job: Job) -> None:
        """Tell the policies of a job that was submitted."""
        for hook, bound in self._told_of_submissions:
            bound.tell(hook, job)

    def observe(self, outcome: Outcome) -> None:
        """Let the policies learn from an attempt that ended."""
        for hook, bound in self._told_of_outcomes:
            bound.tell(hook, outcome)

    def lose(self, start: Start) -> None:
        """Tell the policies of an attempt that was lost to an accident and is not repeated."""
        for hook, bound in self._told_of_losses:
            bound.tell(hook, start)
