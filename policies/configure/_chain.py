"""A parent first, then a batch size given the work that it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny
from typing_extensions import override

from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import (
    Configuration,
    Knobs,
    Options,
    Outcome,
    Running,
    Start,
    TrialKind,
)
from wattkeeper.policies.registry import PolicyConfig, build_policy, find_config

ALLOWED = "a list holds one policy that chooses the parent, then one that chooses the batch size"


class Chain(Configure):
    """See `ChainConfig`."""

    def __init__(self, config: ChainConfig) -> None:
        self._configs = config.parts
        self._policies: list[Configure] = [build_policy(part) for part in config.parts]
        self._work: dict[str, float] = {}  # that a parent left, by job under way

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """The parent of the first policy, with the batch size and the power limit of the second.

        A job without batch sizes has a parent alone.
        """
        inherited = self._ask(0, ctx, start)
        if not start.options.batch_sizes:
            return inherited
        work = 1.0
        if inherited.parent is not None:
            work = ctx.zoo.work_left(start.job, inherited.parent)
        self._work.pop(start.job.job_id, None)
        if work < 1:
            self._work[start.job.job_id] = work
        chosen = self._ask(1, ctx, start._replace(work=work))
        parent, query_s, trial = inherited.parent, inherited.query_s, inherited.trial
        return chosen._replace(parent=parent, query_s=query_s, trial=trial)

    def _ask(self, index: int, ctx: Context, start: Start) -> Configuration:
        config, method = self._configs[index], self._policies[index].configure
        with explain_failures(config, method, f" for job {start.job.job_id}"):
            answer = method(ctx, start)
            if not isinstance(answer, Configuration):
                raise TypeError(f"found {answer!r}")
        return answer

    def tuner(self) -> Tune:
        """That of the second policy, which chooses the power limit, given the work left."""
        return _ChainTune(self._configs[1], self._policies[1].tuner(), self._work)

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Tell both policies."""
        for config, policy in zip(self._configs, self._policies, strict=True):
            with explain_failures(config, policy.on_submit, f" for job {job.job_id}"):
                policy.on_submit(ctx, job)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Tell both policies what the attempt came to, given the work that its parent left."""
        job_id = outcome.start.job.job_id
        start = outcome.start._replace(work=self._work.pop(job_id, 1.0))
        outcome = outcome._replace(start=start)
        for config, policy in zip(self._configs, self._policies, strict=True):
            with explain_failures(config, policy.observe, f" for job {job_id}"):
                policy.observe(ctx, outcome)

    def on_loss(self, ctx: Context, start: Start) -> None:
        """Tell both policies that an attempt was lost."""
        work = self._work.pop(start.job.job_id, 1.0)
        for config, policy in zip(self._configs, self._policies, strict=True):
            with explain_failures(config, policy.on_loss, f" for job {start.job.job_id}"):
                policy.on_loss(ctx, start._replace(work=work))

    def state_dict(self) -> dict[str, Any]:
        """What both have learnt, and the work that parents left of jobs under way."""
        return {
            "policies": [policy.state_dict() for policy in self._policies],
            "work": dict(self._work),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        for policy, saved in zip(self._policies, state["policies"], strict=True):
            policy.load_state_dict(saved)
        self._work.clear()
        self._work.update(state["work"])


class _ChainTune(Tune):
    """The second policy of a chain at `Tune`; `work`: that parents left, by job under way."""

    def __init__(self, config: PolicyConfig, policy: Tune, work: Mapping[str, float]) -> None:
        self._config, self._policy, self._work = config, policy, work

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """Ask it given the work that the parent left."""
        start = running.start
        start = start._replace(work=self._work.get(start.job.job_id, 1.0))
        with explain_failures(self._config, self._policy.tune, f" for job {start.job.job_id}"):
            return self._policy.tune(ctx, running._replace(start=start))


def _config_of(value: object) -> object:
    """The config that a mapping stands for, by its kind."""
    return find_config("configure", value["kind"], value) if isinstance(value, dict) else value


class ChainConfig(PolicyConfig):
    """A policy that chooses the parent, then one that chooses the batch size.

    In a scenario it is a list of both. The second policy is told what share of the training the
    parent leaves, when it decides and when it learns (`Start.work`).
    """

    sets_parent: ClassVar[bool] = True
    composed: ClassVar[bool] = True
    policy = Chain
    chain: tuple[Annotated[SerializeAsAny[PolicyConfig], BeforeValidator(_config_of)], ...]
    """The configs of both, in this order."""

    @property
    @override
    def parts(self) -> tuple[PolicyConfig, ...]:
        return self.chain

    @property
    def needs_foresight(self) -> bool:  # type: ignore[override]
        """Whether one of them does."""
        return any(part.needs_foresight for part in self.chain)

    @property
    def sets_power(self) -> bool:  # type: ignore[override]
        """Whether the second one does."""
        return self.chain[-1].sets_power

    @property
    def draws(self) -> bool:  # type: ignore[override]
        """Whether one of them does."""
        return any(part.draws for part in self.chain)

    @property
    def tunes(self) -> bool:  # type: ignore[override]
        """Whether the second one does."""
        return self.chain[-1].tunes

    @property
    def moments(self) -> tuple[Moment, ...]:  # type: ignore[override]
        """Those of the second one."""
        return self.chain[-1].moments

    @property
    def slices(self) -> bool:
        """Whether the second one asks for slices."""
        return self.chain[-1].slices

    @property
    @override
    def trial(self) -> TrialKind:
        return self.chain[0].trial

    @property
    def sees_queue(self) -> bool:
        """Whether the second one does."""
        return self.chain[-1].sees_queue

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that they read."""
        return tuple(dict.fromkeys(name for part in self.chain for name in part.signals))

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The columns that they need."""
        return {name: advice for part in self.chain for name, advice in part.needed_columns.items()}

    @override
    def check(self, options: Options) -> None:
        for part in self.chain:
            part.check(options)


def chain_of(configs: Sequence[PolicyConfig]) -> PolicyConfig:
    """The config of a list of policies; of a list of one, that policy.

    Raises:
        ValueError: If they cannot follow each other.
    """
    if len(configs) == 1:
        return configs[0]
    parents = [config.kind for config in configs if config.sets_parent]
    sizes = [config.kind for config in configs if not config.sets_parent]
    for kinds, what in ((parents, "parents"), (sizes, "batch sizes")):
        if len(kinds) > 1:
            raise ValueError(
                f"found {len(kinds)} that choose {what}, {' and '.join(kinds)}; {ALLOWED}"
            )
    if not configs:
        raise ValueError(f"found an empty list; {ALLOWED}")
    if not configs[0].sets_parent:
        raise ValueError(f"found {sizes[0]} before {parents[0]}; {ALLOWED}")
    return ChainConfig(kind="+".join(config.kind for config in configs), chain=tuple(configs))
