"""The policies of a job, asked in a transaction of the store that holds what they learnt."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import sqlalchemy as sa

from wattkeeper.live.session.store import SessionStore
from wattkeeper.policies.errors import PolicyError, StoreError
from wattkeeper.policies.profile import Objective, Profile
from wattkeeper.policies.protocols import Configuration as Configuration
from wattkeeper.policies.protocols import (
    EmptyZoo,
    Job,
    Measurement,
    Options,
    Outcome,
    Running,
    Start,
)
from wattkeeper.policies.protocols import Knobs as Knobs
from wattkeeper.policies.registry import Point, PolicyConfig, build_policy, find_config
from wattkeeper.sim.engine.rng import NamedStreams
from wattkeeper.sim.engine.validation import check_configuration, check_knobs

ASKED: Final[tuple[Point, ...]] = ("configure", "tune")
"""The decision points of a session."""


class JobPlan(NamedTuple):
    """What is said of a job, and of the devices that an attempt runs on.

    What is learnt under one plan is not used under another one, but for the two policies: each
    keeps what it learnt itself.

    Attributes:
        job: Name of the recurring job.
        batch_sizes: What may be chosen, samples, ascending.
        default_batch_size: One of them.
        max_epochs: It is given up after so many.
        target: Value of the metric that ends it; None: nothing but the number of epochs does.
        higher_is_better: Whether the target is reached from below.
        eta: Weighs energy and time in the cost.
        gpu_type: What it runs on.
        gpus: How many of these.
        limits_w: Power limits of each that may be chosen, W, ascending; empty if none may.
        max_power_w: The largest limit of each, W.
        configure: Config of the policy that chooses batch sizes.
        tune: Config of the policy that chooses power limits.
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
    tune: PolicyConfig

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
        )

    def to_json(self, policies: bool = True) -> str:
        """All of it as JSON, for `from_json`; or all but the policies."""
        values: dict[str, Any] = self._asdict()
        configs = {point: values.pop(point).model_dump() for point in ASKED}
        return _json(values | configs if policies else values)

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
            values[point] = find_config(point, values[point]["kind"], values[point])
        return cls(**values)


def digest(text: str) -> str:
    """A short name of a text."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def config_of(point: Point, chosen: str | PolicyConfig) -> PolicyConfig:
    """The config of a policy that a session can ask.

    Args:
        point: Its decision point.
        chosen: Its name, or its config.

    Raises:
        InputError: If there is none of that name, it needs a value, or it is of another point.
        PolicyError: If it needs to know what was not measured yet, or a zoo.
    """
    config = find_config(point, chosen)
    if config.needs_foresight:
        raise PolicyError(
            f"the {point} policy {config.kind!r} must know how all choices turn out before any is "
            "tried, which only a simulation can: choose another one", point)  # fmt: skip
    if config.sets_parent:
        raise PolicyError(
            f"the {point} policy {config.kind!r} chooses from a zoo of models: give it to "
            "warm_start, and another one to the session", point)  # fmt: skip
    return config


def _json(values: Any) -> str:
    return json.dumps(values, allow_nan=False, sort_keys=True)


class _Context:
    """See `wattkeeper.policies.protocols.Context`.

    A stream depends on the seed of the job, the decision point, the stream's name and the attempt,
    so that the same store gives the same decision.
    """

    zoo = EmptyZoo()

    def __init__(self, seed: int, point: Point, start: Start, now_s: float, eta: float) -> None:
        self.now_s = now_s
        self.objective = Objective(eta)
        self._streams: dict[str, np.random.Generator] = {}
        self._named, self._point = NamedStreams(seed), point
        self._of = f"{start.job.recurrence}/{start.attempt}"

    def rng(self, name: str) -> np.random.Generator:
        if name not in self._streams:
            self._streams[name] = self._named.policy(self._point, f"{name}/{self._of}")
        return self._streams[name]

    def foresight(self, start: Start) -> Profile:
        raise PolicyError("nothing is known before it is measured", self._point)


class PolicyHost:
    """The two policies of a plan with what they learnt, inside a transaction.

    Args:
        store: Where that is kept.
        db: The transaction, which holds the row of the job.
        job: That row.
        plan: Of the attempt.
        row: The attempt: its recurrence, number, and how many others of the job were in flight.
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
        now_s = store.now_s(db) - job["begun_s"]
        self._contexts = {
            point: _Context(job["seed"], point, self.start, now_s, plan.eta) for point in ASKED
        }
        self._policies = {point: self._load(point) for point in ASKED}

    def _config(self, point: Point) -> PolicyConfig:
        return self._plan.configure if point == "configure" else self._plan.tune

    def _load(self, point: Point) -> Any:
        config = self._config(point)
        policy = build_policy(config)
        state = self._store.state(self._db, self._plan.job, point, _json(config.model_dump()))
        if state is not None:
            try:
                policy.load_state_dict(json.loads(state))
            except Exception as error:
                raise StoreError(
                    f"what the {point} policy {config.kind!r} learnt of {self._plan.job!r} in "
                    f"{self._store.name} is not as this version of it writes it "
                    f"({type(error).__name__}: {error}): use that version, or name another job or "
                    "store"
                ) from error
        return policy

    def save(self) -> None:
        """Keep what they learnt since."""
        for point, policy in self._policies.items():
            config = _json(self._config(point).model_dump())
            state = _json(policy.state_dict())
            self._store.keep(self._db, self._plan.job, point, config, state)

    def submitted(self) -> None:
        """Tell them of a new recurrence."""
        for point, policy in self._policies.items():
            policy.on_submit(self._contexts[point], self.start.job)

    def configure(self) -> Configuration:
        """Ask how the attempt shall run.

        Raises:
            PolicyError: If the policy chose what is not allowed.
        """
        ctx = self._contexts["configure"]
        chosen: Configuration = self._policies["configure"].configure(ctx, self.start)
        check_configuration(self.start, chosen)
        return chosen

    def tune(self, chosen: Configuration, measured: tuple[Measurement, ...]) -> Knobs:
        """Ask for the power limit, or what to measure first; nothing where there is no choice.

        Raises:
            PolicyError: If the policy chose what is not allowed.
        """
        limits_w = self._plan.limits_w
        if len(limits_w) < 2:
            return Knobs(limits_w[0] if limits_w else None)
        running = Running(self.start, chosen, measured)
        knobs: Knobs = self._policies["tune"].tune(self._contexts["tune"], running)
        check_knobs(self.start, chosen.batch_size, knobs, bool(measured))
        return knobs

    def observe(self, row: Mapping[str, Any], cost: float, reached: bool) -> None:
        """Let them learn what the attempt of a row came to, at a cost in J."""
        limits_w = self.start.options.limits(row["batch_size"])
        outcome = Outcome(
            start=self.start,
            batch_size=row["batch_size"],
            power_limit_w=row["power_limit_w"] or limits_w[-1],
            epochs=max(1, row["epochs"]),
            time_s=row["time_s"],
            energy_j=math.nan if row["energy_j"] is None else row["energy_j"],
            cost=cost,
            reached=reached,
        )
        for point, policy in self._policies.items():
            policy.observe(self._contexts[point], outcome)
