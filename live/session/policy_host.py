"""The policies of a job, asked in a transaction of the store that holds what they learnt."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from wattkeeper.live.session.store import SessionStore, decisions, insert_into, slices_of, states
from wattkeeper.live.wire.messages import AttemptResult
from wattkeeper.policies.errors import InputError, StoreError
from wattkeeper.policies.failures import explain_failures
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.moments import START_MOMENTS, Progress
from wattkeeper.policies.points.policy import Policy
from wattkeeper.policies.points.views import Configuration, Knobs, Options, Running, Slice, Start
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import Point, PolicyConfig, build_policy, find_config
from wattkeeper.sim.attempts.decided import AttemptTotals, Decision, Tuned, Untuned
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.kernel.clock import FixedTime
from wattkeeper.sim.kernel.hosting import BoundPolicy, Capabilities, Host
from wattkeeper.sim.kernel.journal import DecisionJournal
from wattkeeper.sim.kernel.streams import NamedStreams

ASKED: Final[tuple[Point, ...]] = ("configure", "tune")
"""The decision points of a session."""
SESSION: Final = Capabilities("a session", (*START_MOMENTS, "reached"), slices=True)
"""What sessions offer to policies."""


class JobPlan(NamedTuple):
    """A job, its choices, and the devices of an attempt.

    What is learnt under one plan is not used under another one. The two policies do not count:
    each has a state of its own.

    Attributes:
        job: Name of the recurring job.
        batch_sizes: The choices, samples, ascending.
        default_batch_size: One of them.
        max_epochs: The training ends after so many.
        target: Value of the metric that ends it; None: only the number of epochs does.
        higher_is_better: Whether the target is reached from below.
        eta: Weighs energy and time in the cost.
        gpu_type: What it runs on.
        gpus: How many of these.
        limits_w: Power limits of each that may be chosen, W, ascending; empty if none may.
        max_power_w: The largest limit of each, W.
        configure: Config of the policy that chooses batch sizes.
        tune: Config of the policy that chooses power limits; None: `configure` does.
        samples_per_epoch: Samples of an epoch; 0 if not known.
    """

    job: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    max_epochs: int
    target: float | None
    higher_is_better: bool
    eta: float
    gpu_type: str
    gpus: int
    limits_w: tuple[float, ...]
    max_power_w: float
    configure: PolicyConfig
    tune: PolicyConfig | None
    samples_per_epoch: float = 0.0

    @property
    def tuning(self) -> PolicyConfig:
        """Config of the policy that is asked at `Tune`: a choice of one limit needs none."""
        if self.tune is None:
            return self.configure
        return self.tune if len(self.limits_w) > 1 else find_config("tune", "max-power")

    @property
    def options(self) -> Options:
        """What policies may choose from; its key names all that costs depend on."""
        limits_w = self.limits_w or (self.max_power_w,)
        return Options(
            key=f"{self.gpu_type}x{self.gpus}/{digest(self.to_json(policies=False))}",
            gpu_type=self.gpu_type,
            gpus=self.gpus,
            batch_sizes=self.batch_sizes,
            limits_w=(limits_w,) * len(self.batch_sizes),
            default_batch_size=self.default_batch_size,
            max_power_w=self.max_power_w,
            max_epochs=self.max_epochs,
            samples_per_epoch=self.samples_per_epoch,
        )

    def to_json(self, policies: bool = True) -> str:
        """All of it as JSON, for `from_json`; or all but the policies."""
        values: dict[str, Any] = self._asdict()
        configs = {point: values.pop(point) for point in ASKED}
        samples = values.pop("samples_per_epoch")
        if not policies:  # it may grow from one recurrence to the next
            return _json(values)
        if samples:
            values["samples_per_epoch"] = samples
        dumped = {point: config and config.model_dump() for point, config in configs.items()}
        return _json(values | dumped)

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        """The plan that `to_json` wrote.

        Raises:
            InputError: If a policy of it is not installed (any more).
        """
        values = json.loads(text)
        for name in ("batch_sizes", "limits_w"):
            values[name] = tuple(values[name])
        for point in ASKED:
            if values[point] is not None:
                values[point] = find_config(point, values[point]["kind"], values[point])
        return cls(**values)


def digest(text: str) -> str:
    """A short hash of a text."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def config_of(point: Point, chosen: str | PolicyConfig) -> PolicyConfig:
    """The config of a policy that a session can ask.

    Raises:
        InputError: If there is none of that name, it needs a value, or it is of another point.
        PolicyError: If it needs what a session does not have.
    """
    config = find_config(point, chosen)
    SESSION.check(config)
    return config


def configs_of(
    configure: str | PolicyConfig, tune: str | PolicyConfig | None
) -> tuple[PolicyConfig, PolicyConfig | None]:
    """The configs of a session's policies; that of `tune` is None where `configure` stands there.

    Raises:
        InputError: As `config_of`, or if `tune` is given though `configure` stands there.
        PolicyError: As `config_of`.
    """
    first = config_of("configure", configure)
    if not first.tunes:
        return first, config_of("tune", "zeus-jit" if tune is None else tune)
    if tune is not None:
        raise InputError(
            f"the configure policy {first.kind!r} is the tune policy, too: leave tune out"
        )
    return first, None


def _json(values: Any) -> str:
    return json.dumps(values, allow_nan=False, sort_keys=True)


class PolicyHost(DecisionJournal):
    """The policies of a plan with what they learnt, inside a transaction.

    One that stands at both decision points is built, restored and saved once.
    Their random streams depend on the seed of the job, the decision point, the stream's name and
    the attempt, so that the same store gives the same decision. Where there is one power limit or
    none, `Tune` is not asked.

    The transaction `db` holds `job`, the row of the job. `row` is of the attempt: its recurrence,
    number, and how many others of the job were in flight.

    Attributes:
        start: The attempt.
        maker: Asks the policies.
        policies: Lets them learn.
    """

    def __init__(
        self,
        store: SessionStore,
        db: sa.Connection,
        job: sa.RowMapping,
        plan: JobPlan,
        row: Mapping[str, Any] | sa.RowMapping,
    ) -> None:
        self._store, self._db, self._plan = store, db, plan
        recurrence: int = row["recurrence"]
        view = Job(
            job_id=f"{plan.job}-{recurrence}",
            group_id=plan.job,
            recurrence=recurrence,
            workload=plan.job,
            gpus=plan.gpus,
            submit_time_s=0.0,
        )
        self.start = Start(view, row["attempt"], plan.options, row["in_flight"])
        self._configs: dict[Point, PolicyConfig] = {
            "configure": plan.configure,
            "tune": plan.tuning,
        }
        clock = FixedTime(store.now_s(db) - job["begun_s"])
        streams, suffix = NamedStreams(job["seed"]), f"/{recurrence}/{self.start.attempt}"
        self.policies = host = Host(
            SESSION, clock, Objective(plan.eta), streams, self, suffix=suffix
        )
        configure = host.engage(plan.configure, self._restored(plan.configure))
        self._engaged: dict[Point, BoundPolicy] = {"configure": configure}
        if plan.tune is None:
            tune = host.engage_tune(configure, plan.configure)
        else:
            tune = host.engage(plan.tuning, self._restored(plan.tuning))
            self._engaged["tune"] = tune
        self.maker = DecisionMaker(configure, tune, self)

    def _restored(self, config: PolicyConfig) -> Policy:
        """A policy with what it learnt."""
        policy: Policy = build_policy(config)
        s = states.c
        key = (s.job == self._plan.job, s.point == config.point, s.config == _key(config))
        state: str | None = self._db.execute(sa.select(s.state).where(*key)).scalar()
        if state is not None:
            try:
                policy.load_state_dict(json.loads(state))
            except Exception as error:
                raise StoreError(
                    f"what the {config.point} policy {config.kind!r} learnt of {self._plan.job!r} "
                    f"in {self._store.name} is not as this version of it writes it "
                    f"({type(error).__name__}: {error}): use that version, or name another job or "
                    "store"
                ) from error
        return policy

    def note(
        self,
        now_s: float,
        point: Point,
        subject: int,
        attempt: int,
        saw: tuple[object, ...],
        chose: str,
    ) -> None:
        """See `wattkeeper.sim.kernel.journal.DecisionJournal`."""
        name = self._plan.job
        last = sa.select(sa.func.max(decisions.c.number)).where(decisions.c.job == name)
        row = sa.insert(decisions).values(
            job=name,
            number=(self._db.execute(last).scalar() or 0) + 1,
            recurrence=self.start.job.recurrence,
            attempt=attempt,
            time_s=now_s,
            point=point,
            policy=self._configs[point].kind,
            saw=repr(saw),
            chose=chose,
        )
        self._db.execute(row)

    def save(self) -> None:
        """Store what the policies learnt."""
        for point, engaged in self._engaged.items():
            policy, about = engaged.policy, f" for {self._plan.job}"
            with explain_failures(self._configs[point], policy.state_dict, about):
                state = _json(policy.state_dict())
            row = insert_into(self._db)(states).values(
                job=self._plan.job, point=point, config=_key(self._configs[point]), state=state
            )
            update = row.on_conflict_do_update(
                index_elements=states.primary_key.columns, set_={"state": state}
            )
            self._db.execute(update)

    def restore(self, row: sa.RowMapping) -> Decision:
        """What was decided of the attempt of a row."""
        bound = math.inf if row["cost_bound"] is None else row["cost_bound"]
        chosen, profile_w = Configuration(row["batch_size"], cost_bound=bound), row["profile_w"]
        limits_w = tuple(json.loads(profile_w))
        start = self.start._replace(attempt=row["attempt"])
        own = [each for each in slices_of(self._db, row["id"]) if each[1].batch_size is None]
        measured = tuple(found for *_, found in own if found is not None)
        profiled = bool(limits_w or own)
        if row["power_limit_w"] is not None:
            return Tuned(start, chosen, row["power_limit_w"], profiled)
        if own and len(measured) == len(own):  # it has no power limits
            return Tuned(start, chosen, self._plan.max_power_w, profiled)
        return Untuned(start, chosen, limits_w, (), own[-1][1] if own else None, measured)

    def ask_for_other(self, row: sa.RowMapping) -> Slice | None:
        """The slice of another batch size that the attempt of a row shall train, or none.

        It has reached its target.
        """
        decided = self.restore(row)
        tuned = decided if isinstance(decided, Tuned) else decided.at_present_limit()
        found = [found for *_, found in slices_of(self._db, row["id"])]
        measured = tuple(each for each in found if each is not None)
        time_s, energy_j = row["time_s"], row["energy_j"] or 0.0
        running = Running(
            tuned.start,
            tuned.configuration,
            measured,
            "reached",
            Progress(float(row["epochs"]), time_s, time_s, energy_j),
            Knobs(tuned.power_limit_w),
        )
        knobs = self.maker.retune(running)
        return None if knobs is None else knobs.slice

    def observe(
        self, row: sa.RowMapping, result: AttemptResult, cost: float, reached: bool
    ) -> None:
        """Let the policies learn what the attempt of a row came to, at a cost in J."""
        decided = self.restore(row)
        tuned = decided if isinstance(decided, Tuned) else decided.at_present_limit()
        energy_j = math.nan if result.energy_j is None else result.energy_j
        totals = AttemptTotals(max(1, result.epochs), result.time_s, energy_j, reached)
        self.policies.observe(tuned.outcome(totals, cost))

    def lose(self, row: sa.RowMapping) -> None:
        """Tell `Configure` that the attempt of a row was lost and is not repeated."""
        self.policies.lose(self.restore(row).start)


def _key(config: PolicyConfig) -> str:
    return _json(config.model_dump())
