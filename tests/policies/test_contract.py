"""The contract of all policies: what every config and every policy keeps, whatever it decides."""

from __future__ import annotations

import inspect
import json
import math
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.policies.configure.test_zoo_configure import CHILD, PARENTS, Models
from tests.support.worlds import (
    DEFAULTS,
    NEVER,
    ScriptedContext,
    attempts,
    attempts_by_job,
    by_job,
    chosen,
    decisions,
    example,
    job,
    profile,
    run_world,
    scripted_signal,
    spec,
)
from wattkeeper.policies.configure._chain import chain_of
from wattkeeper.policies.elastic.replanning import (
    ElasticTask,
    ElasticView,
    Replan,
    ReplanMoment,
    Reshape,
    Shape,
    check_reshape,
)
from wattkeeper.policies.moments import FIRST, Progress
from wattkeeper.policies.profile import Profile
from wattkeeper.policies.protocols import (
    NEW,
    CapacityView,
    Configuration,
    Configure,
    Job,
    Knobs,
    Measurement,
    Options,
    Outcome,
    Place,
    Placement,
    Running,
    Select,
    Selection,
    Slice,
    Start,
    Tune,
)
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies
from wattkeeper.policies.retaining import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    check_retention,
)
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.traces.schema import JOBS

PROTOCOLS: dict[Point, type] = {
    "configure": Configure,
    "select": Select,
    "place": Place,
    "tune": Tune,
    "replan": Replan,
    "retain": Retain,
}
GROUPS = 3
NODES, GPUS_PER_NODE = 3, 2
CAPACITY_BYTES = 100
MAX_ATTEMPTS = 3
MOST_SLICES = 50
ELASTIC = ElasticTask(
    "gpt", 3, (0.0, 0.0, 0.0, 0.0, *(5.0 * n**0.9 for n in range(4, 13))), 64.0, 2.0,
    tuple(20.0 + n for n in range(13)), 3.0,
)  # fmt: skip
"""It holds 3 nodes at least, trains on 4 to 12, and writes a checkpoint in 2 s."""
SIZES = {
    16: (3.0, NEVER, 4.0),
    32: (3.0, 2.0, NEVER),
    64: (NEVER, 2.0),
    128: (NEVER,),
}


def variations(config: type[PolicyConfig]) -> Iterator[PolicyConfig]:
    """The example, and the example with each switch, choice and optional number changed once."""
    plain = example(config)
    yield plain
    for name, field in config.model_json_schema()["properties"].items():
        kinds = {part.get("type") for part in field.get("anyOf", [field])}
        values: list[Any] = field.get("enum", [])
        if "boolean" in kinds:
            values = [True, False]
        elif kinds == {"integer", "null"}:
            values = [32]
        for value in values:
            if getattr(plain, name) != value:
                yield config.model_validate({**plain.model_dump(), name: value})


KINDS = [(point, kind) for point in POINTS for kind in policies(point)]
CHAINS = [
    chain_of([parent, size])
    for parent in (
        example(policies("configure")[kind]) for kind in ("modelkeeper", "random-parent")
    )
    for size in map(example, policies("configure").values())
    if not size.sets_parent
]
CONFIGS = [config for point, kind in KINDS for config in variations(policies(point)[kind])] + CHAINS


def label(config: PolicyConfig) -> str:
    settings = config.model_dump(exclude_defaults=True)
    return " ".join([f"{config.point}/{config.kind}", *(f"{k}={v}" for k, v in settings.items())])


every_kind = pytest.mark.parametrize(("point", "kind"), KINDS)
every_config = pytest.mark.parametrize("config", CONFIGS, ids=label)


# --- configs


def test_every_decision_point_has_a_policy() -> None:
    assert set(POINTS) == set(PROTOCOLS)
    assert all(policies(point) for point in POINTS)


@every_kind
def test_kind_is_the_name_in_the_registry(point: Point, kind: str) -> None:
    config = policies(point)[kind]
    assert config.point == point
    assert config.model_fields["kind"].default == kind
    assert config.model_json_schema()["properties"]["kind"]["const"] == kind
    with pytest.raises(ValidationError):
        config.model_validate({**example(config).model_dump(), "kind": f"not-{kind}"})


@every_kind
def test_config_describes_each_field(point: Point, kind: str) -> None:
    config = policies(point)[kind]
    assert "__doc__" in vars(config), "the docstring is inherited"
    assert inspect.cleandoc(config.__doc__ or "").split("\n")[0].endswith(".")
    fields = config.model_json_schema()["properties"]
    assert all(
        fields[name].get("description", "").endswith(".") for name in fields if name != "kind"
    )


@every_config
def test_config_is_frozen_and_refuses_unknown_keys(config: PolicyConfig) -> None:
    for name in type(config).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(config, name, getattr(config, name))
    with pytest.raises(ValidationError, match="extra"):
        type(config).model_validate({**config.model_dump(), "colour": "red"})


@every_config
def test_config_survives_pickle_and_json(config: PolicyConfig) -> None:
    copies = (
        pickle.loads(pickle.dumps(config)),
        type(config).model_validate_json(config.model_dump_json()),
        type(config).model_validate(config.model_dump()),
    )
    for copy in copies:
        assert type(copy) is type(config)
        assert copy == config


@every_config
def test_config_needs_columns_that_jobs_may_have(config: PolicyConfig) -> None:
    assert set(config.needed_columns) <= set(JOBS.names)
    assert all(config.needed_columns.values()), "it says what to do where one is absent"


# --- policies, without a world


class Flight:
    """An attempt that runs."""

    def __init__(self, start: Start, placement: Placement) -> None:
        self.start, self.placement = start, placement
        self.configuration = Configuration(32)
        self.limit_w = 0.0
        self.measured: tuple[Measurement, ...] = ()


class ScriptedCapacity(CapacityView):
    """A cluster without places: what `Select` is shown of it."""

    def __init__(self, running: Mapping[int, Flight]) -> None:
        self._running = running

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return NODES * GPUS_PER_NODE

    @property
    def free_gpus(self) -> int:
        """GPUs that no flight holds."""
        return self.gpus - sum(flight.start.job.gpus for flight in self._running.values())

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        """Whether there are as many; who is preempted must run."""
        assert all(other.number in self._running for other in without)
        assert len({other.number for other in without}) == len(without)
        return job.gpus <= self.free_gpus + sum(other.gpus for other in without)


Step = tuple[Literal["submit", "end"], int]
steps = st.lists(st.tuples(st.sampled_from(["submit", "end"]), st.integers(0, 5)), max_size=60)


class Rehearsal:
    """Puts one policy through a stream of starts and outcomes, and checks all that it decides.

    Args:
        config: Of the policy; the other decision points are filled with the simplest answers.
        stream: Submissions (of a group) and ends (of an attempt in flight).
        seed: Of the random streams.
        cut: Before this step, all that is submitted ends if the policy keeps a queue, for that is
            no part of its state.
        restart: Whether the policy is then replaced by a new one with its state.
        stranger: Whether outcomes of a group that never started are thrown in.
    """

    def __init__(
        self,
        config: PolicyConfig,
        stream: Sequence[Step],
        seed: int = 1,
        cut: int | None = None,
        restart: bool = False,
        stranger: bool = False,
    ) -> None:
        self.config = config
        self.policy = config.build()
        self.ctx = ScriptedContext(profile(runs=SIZES, max_epochs=5), seed)
        if config in CHAINS:
            self.ctx.zoo = Models(CHILD, PARENTS)
        self.cluster = Cluster(spec(NODES, GPUS_PER_NODE))
        self.flights: list[Flight] = []
        self.stored: dict[str, StoredModel] = {}
        self.nodes: list[int] = []
        self.spare: list[int] = []
        self.shape: Shape | None = None
        self.count = 0
        self.waiting: dict[int, tuple[Job, int]] = {}
        self.submitted = [0] * GROUPS
        self.calls = 0
        self.decisions: list[str] = []
        self.stranger = stranger
        known = repr(self.ctx.known)
        self.go_on(stream[:cut])
        if cut is not None:
            self._cut(restart)
            self.go_on(stream[cut:])
        assert repr(self.ctx.known) == known, "the foreseen profile was changed"

    def go_on(self, stream: Sequence[Step]) -> None:
        """Put the policy through more of the stream."""
        for action, number in stream:
            self.ctx.now_s += 1.0
            if self.config.point == "replan":
                self._gain() if action == "submit" else self._lose(number)
            elif self.config.point == "retain":
                self._finish(number) if action == "submit" else self._use(number)
            elif action == "submit":
                self._submit(number % GROUPS)
            elif self.flights:
                self._end(number % len(self.flights))
            if self.stranger:
                self._ask("observe", self._of_a_stranger())
            self._pass()

    @property
    def state(self) -> str:
        """The policy's state as JSON."""
        return json.dumps(self.policy.state_dict(), allow_nan=False, sort_keys=True)

    def _cut(self, restart: bool) -> None:
        while self.config.point == "select" and (self.flights or self.waiting):
            self.ctx.now_s += 1.0
            self._end(0)
            self._pass()
        if restart:
            kept = self.state  # sorted, as sessions store it
            self.policy = self.config.build()
            self.policy.load_state_dict(json.loads(kept))

    def _ask(self, method: str, *views: Any) -> Any:
        self.calls += 1
        shown = repr(views)
        context = () if method in ("retain", "on_use") else (self.ctx,)
        policy = self.policy
        if method == "tune" and self.config.tunes:
            policy = policy.tuner()
        answer = getattr(policy, method)(*context, *views)
        assert repr(views) == shown, f"{method} changed what it was shown"
        if method in ("observe", "on_submit", "on_end", "on_refuse", "on_use"):
            assert answer is None
        else:
            self.decisions.append(repr(answer))
        return answer

    def _submit(self, group: int) -> None:
        self.submitted[group] += 1
        recurrence = self.submitted[group]
        name = f"group-{group}"
        new = job(f"{name}/{recurrence}", self.ctx.now_s, group=name, recurrence=recurrence)
        number = sum(self.submitted) - 1
        new = new.replace(gpus=1 + (group + recurrence) % 4, number=number, user=name)
        if self.config.point == "select":
            self.waiting[number] = new, 1
            self._ask("on_submit", new)
            return
        placement = self._place(new)
        if placement or self.config.point != "place":
            self._start(new, 1, placement)

    def _pass(self) -> None:
        """What the world does at the end of a time: starts and preempts until nothing changes."""
        while self.config.point == "select":
            running = {flight.start.job.number: flight for flight in self.flights}
            capacity = ScriptedCapacity(running)
            chosen: Selection = self._ask("select", capacity)
            check_selection(chosen, self.waiting.keys(), running.keys())
            if not (chosen.start or chosen.preempt):
                break
            for victim in chosen.preempt:
                flight = running.pop(victim.number)
                self.flights.remove(flight)
                self.waiting[victim.number] = victim, flight.start.attempt
            for new in chosen.start:
                assert capacity.fits(new)
                _, attempt = self.waiting.pop(new.number)
                self._start(new, attempt, ())
        if self.config.point == "select":
            wake_s = self._ask("wake_s")
            assert is_plain(wake_s)
            assert wake_s > self.ctx.now_s
            assert self.flights or not self.waiting, "nobody would ever start"

    def _place(self, new: Job) -> Placement:
        if self.config.point != "place":
            return ()
        placement: Placement = self._ask("place", new, self.cluster)
        check_placement(new, self.cluster, placement)
        if placement:
            self.cluster.take(new, placement)
        return placement

    def _start(self, new: Job, attempt: int, placement: Placement) -> None:
        in_flight = sum(flight.start.job.group_id == new.group_id for flight in self.flights)
        flight = Flight(Start(new, attempt, self.ctx.options(), in_flight), placement)
        if self.config.point == "configure":
            flight.configuration = self._ask("configure", flight.start)
            check_configuration(flight.start.options, flight.configuration)
        limits = flight.start.options.limits(flight.configuration.batch_size)
        flight.limit_w = flight.configuration.power_limit_w or limits[-1]
        if self.config.point == "tune" or self.config.tunes:
            flight.limit_w = self._tune(flight, limits)
        self.flights.append(flight)

    def _tune(self, flight: Flight, limits: tuple[float, ...]) -> float:
        knobs = self._ask("tune", Running(flight.start, flight.configuration))
        check_knobs(limits, knobs, reported=False)
        curve = self.ctx.known.curves[flight.configuration.batch_size]
        while knobs.slice is not None:
            assert self.config.slices
            assert len(flight.measured) < MOST_SLICES
            flight.measured += (measure(self.ctx.known, curve.batch_size, knobs.slice),)
            knobs = self._ask(
                "tune", Running(flight.start, flight.configuration, flight.measured, "profiled")
            )
            check_knobs(limits, knobs, reported=True)
        if knobs.profile_w:
            points = dict(
                zip(
                    curve.limits_w,
                    zip(curve.time_per_epoch_s, curve.average_power_w, strict=True),
                    strict=True,
                )
            )
            report = tuple(Measurement(limit, *points[limit]) for limit in knobs.profile_w)
            knobs = self._ask("tune", Running(flight.start, flight.configuration, report))
            check_knobs(limits, knobs, reported=True)
        assert knobs.power_limit_w is not None
        return float(knobs.power_limit_w)

    def _end(self, index: int) -> None:
        flight = self.flights.pop(index)
        outcome = self.ctx.outcome(flight.start, flight.configuration, flight.limit_w)
        if outcome.reached and "reached" in self.config.moments:
            self._measure_others(flight, outcome)
        self._ask("observe", outcome)
        if not outcome.reached and flight.start.attempt < MAX_ATTEMPTS:
            self._start(flight.start.job, flight.start.attempt + 1, flight.placement)
        elif self.config.point == "select":
            self._ask("on_end", flight.start.job)
        elif flight.placement:
            self.cluster.release(flight.start.job, flight.placement)

    def _measure_others(self, flight: Flight, outcome: Outcome) -> None:
        """Train slices of other batch sizes, as long as the policy asks for some."""
        done = Progress(float(outcome.epochs), outcome.time_s, outcome.time_s, outcome.energy_j)
        while True:
            knobs = self._ask("tune", Running(
                flight.start, flight.configuration, flight.measured, "reached", done
            ))  # fmt: skip
            if knobs is None:
                return
            assert knobs == Knobs(slice=knobs.slice)
            assert knobs.slice.batch_size in flight.start.options.batch_sizes
            assert knobs.slice.power_limit_w in flight.start.options.limits(knobs.slice.batch_size)
            assert len(flight.measured) < MOST_SLICES
            flight.measured += (measure(self.ctx.known, knobs.slice.batch_size, knobs.slice),)

    def _gain(self) -> None:
        """A node comes, and is taken up if the policy wants it, or too few are there."""
        self.count += 1
        self.spare.append(self.count)
        if len(self.nodes) + len(self.spare) > ELASTIC.most_nodes:
            self.spare.pop()
        elif len(self.nodes) < ELASTIC.least_nodes:
            self.nodes, self.spare = self.nodes + self.spare, []
            if len(self.nodes) >= ELASTIC.least_nodes:
                self._replan("start")
        elif self._replan("gained") is not None:
            self.nodes, self.spare = self.nodes + self.spare, []
            self._replan("boundary")

    def _lose(self, number: int) -> None:
        if not self.nodes:
            return
        del self.nodes[number % len(self.nodes)]
        self.nodes, self.spare = self.nodes + self.spare, []
        if len(self.nodes) >= ELASTIC.least_nodes:
            self._replan("lost")

    def _replan(self, moment: ReplanMoment) -> Reshape | None:
        held = tuple(sorted(self.nodes))
        spare = len(self.spare) if moment == "gained" else 0
        mean_s = 3600.0 * (1 + self.count % 7)
        view = ElasticView("a", ELASTIC, moment, held, spare, self.shape, mean_s)
        answer: Reshape | None = self._ask("replan", view)
        assert answer is not None or moment == "gained"
        if answer is not None:
            assert isinstance(answer, Reshape)
            assert all(map(is_plain, (answer.pause_s, answer.shape.rate, answer.shape.write_s)))
            check_reshape(answer, view)
            if moment != "gained":
                self.shape = answer.shape
        return answer

    def _finish(self, kind: int) -> None:
        """A model is offered to a store with room for about five."""
        self.count += 1
        accuracy = (0.9, 0.8, 0.85, 0.9, 0.2, 0.95)[kind % 6]
        size_bytes = 10 + 7 * (self.count % 4) + 60 * (self.count % 29 == 0)
        new = StoredModel(
            f"{self.count}", f"task-{kind % 2}", accuracy, size_bytes, self.count, self.count
        )
        shelf = StoredModels(CAPACITY_BYTES, tuple(self.stored.values()))
        decision = self._ask("retain", shelf, new)
        assert isinstance(decision, Retention)
        assert type(decision.admit) is bool
        assert decision.admit == (not decision.reason)
        assert len(set(decision.evict)) == len(decision.evict)
        check_retention(shelf, new, decision)
        for name in decision.evict:
            del self.stored[name]
        if decision.admit:
            self.stored[new.model_id] = new

    def _use(self, number: int) -> None:
        if self.stored:
            self.count += 1
            name = list(self.stored)[number % len(self.stored)]
            self._ask("on_use", self.stored[name])
            model = self.stored[name]
            self.stored[name] = model._replace(uses=model.uses + 1, used=self.count)

    def _of_a_stranger(self) -> Outcome:
        start = Start(job("stranger/1", group="stranger"), 1, self.ctx.options(), 0)
        return self.ctx.outcome(start, Configuration(32), 250.0)


def is_plain(value: object) -> bool:
    """Neither numpy's, which a journal would write otherwise, nor not a number."""
    return type(value) in (int, float) and not math.isnan(value)  # type: ignore[arg-type]


def check_configuration(options: Options, decision: Configuration) -> None:
    assert isinstance(decision, Configuration)
    assert type(decision.batch_size) is int
    assert decision.batch_size in options.batch_sizes
    if decision.power_limit_w is not None:
        assert is_plain(decision.power_limit_w)
        assert decision.power_limit_w in options.limits(decision.batch_size)
    assert is_plain(decision.cost_bound)
    assert decision.cost_bound > 0


def check_knobs(limits: tuple[float, ...], decision: Knobs, *, reported: bool) -> None:
    assert isinstance(decision, Knobs)
    piece = decision.slice
    given = (decision.power_limit_w is not None) + bool(decision.profile_w) + (piece is not None)
    assert given == 1
    assert not (reported and decision.profile_w)
    asked = (decision.power_limit_w,) if piece is None else (piece.power_limit_w,)
    for limit_w in decision.profile_w or asked:
        assert is_plain(limit_w)
        assert limit_w in limits


def measure(known: Profile, batch_size: int, piece: Slice) -> Measurement:
    """What a slice measures."""
    time_s, energy_j = known.curves[batch_size].epoch(piece.power_limit_w)
    part = piece.epochs(time_s, known.samples_per_epoch, batch_size)
    return Measurement(piece.power_limit_w, time_s, energy_j / time_s, 0, batch_size,
                       part * time_s, part * energy_j)  # fmt: skip


def check_selection(
    decision: Selection, waiting: Collection[int], running: Collection[int]
) -> None:
    assert isinstance(decision, Selection)
    started = [one.number for one in decision.start]
    preempted = [one.number for one in decision.preempt]
    assert set(started) <= set(waiting)
    assert set(preempted) <= set(running)
    assert len(set(started)) == len(started)
    assert len(set(preempted)) == len(preempted)


def check_placement(new: Job, cluster: Cluster, decision: Placement) -> None:
    assert isinstance(decision, tuple)
    if not decision:
        assert cluster.free_gpus < cluster.spec.gpus, "what fits an idle cluster would never run"
        return
    assert all(type(value) is int for slot in decision for value in slot)
    nodes = [node for node, _, _ in decision]
    assert len(set(nodes)) == len(nodes)
    for node, gpus, gpu in decision:
        assert 0 <= node < NODES
        assert 0 < gpus <= cluster.free[node]
        assert gpu == NEW, "whole GPUs have no number"
    assert sum(gpus for _, gpus, _ in decision) == new.gpus


@every_config
def test_policy_implements_its_protocol(config: PolicyConfig) -> None:
    policy, protocol = config.build(), PROTOCOLS[config.point]
    asked = [name for name in dir(protocol) if not name.startswith("_")]
    assert "observe" in asked
    for name in asked:
        ours = inspect.signature(getattr(policy, name)).parameters
        theirs = list(inspect.signature(getattr(protocol, name)).parameters)[1:]
        assert list(ours) == theirs, name
    assert config.build() is not policy, "two runs would share one policy"


@every_config
@given(stream=steps, seed=st.integers(0, 99))
def test_decisions_are_allowed_and_deterministic(
    config: PolicyConfig, stream: list[Step], seed: int
) -> None:
    one, other = Rehearsal(config, stream, seed), Rehearsal(config, stream, seed)
    assert one.decisions == other.decisions
    assert one.state == other.state


@every_config
@given(data=st.data(), stream=steps, seed=st.integers(0, 99))
def test_a_restored_policy_decides_like_the_original(
    config: PolicyConfig, data: st.DataObject, stream: list[Step], seed: int
) -> None:
    cut = data.draw(st.integers(0, len(stream)), label="cut before step")
    whole = Rehearsal(config, stream, seed, cut)
    resumed = Rehearsal(config, stream, seed, cut, restart=True)
    assert resumed.decisions == whole.decisions
    assert resumed.state == whole.state


LONG: list[Step] = [("submit", n) for n in (0, 1, 0, 2)] + [
    (action, n % 7)
    for n in range(300)
    for action in (("end", "submit") if n % 5 else ("end", "end", "submit", "submit"))
]


@every_config
def test_a_restart_at_any_point_does_not_change_decisions(config: PolicyConfig) -> None:
    whole = Rehearsal(config, LONG)
    assert whole.calls > 300
    for cut in range(0, len(LONG), 173):
        if config.point == "select":
            whole = Rehearsal(config, LONG, 1, cut)
        resumed = Rehearsal(config, LONG, 1, cut, restart=True)
        assert resumed.decisions == whole.decisions, cut


@every_config
@pytest.mark.parametrize("begun", [1, 5, 15, 40])
def test_a_state_is_a_copy(config: PolicyConfig, begun: int) -> None:
    """What was taken does not change with the policy; what was loaded is not changed by it."""
    giver, taker = Rehearsal(config, LONG[:begun]), Rehearsal(config, [])
    taken = giver.policy.state_dict()
    kept = json.dumps(taken)
    giver.go_on(LONG[begun : begun + 80])
    assert json.dumps(taken) == kept
    taker.policy.load_state_dict(taken)
    taker.go_on(LONG[:80])
    assert json.dumps(taken) == kept


@every_config
def test_outcomes_of_an_unknown_group_change_nothing(config: PolicyConfig) -> None:
    plain, disturbed = Rehearsal(config, LONG[:80]), Rehearsal(config, LONG[:80], stranger=True)
    assert disturbed.calls > plain.calls
    assert disturbed.decisions == plain.decisions
    assert disturbed.state == plain.state


# --- policies, in a world


@pytest.mark.parametrize(
    "config", [config for config in CONFIGS if config.point in DEFAULTS], ids=label
)
@pytest.mark.parametrize("occupancy", ["simulated", "recorded"])
@pytest.mark.parametrize("profiling", ["measured", "foreknown"])
def test_policy_in_a_world(config: PolicyConfig, occupancy: str, profiling: str) -> None:
    at_start = occupancy == "recorded" or profiling == "foreknown"
    if at_start and (config.slices or not set(config.moments) <= set(FIRST)):
        pytest.skip("a policy that decides over time has nothing to decide on there")
    known = by_job(*(profile(runs=SIZES, max_epochs=5, gpus=gpus) for gpus in (1, 3)))
    signals = {name: scripted_signal(name) for name in config.signals}
    jobs = [job(f"{n}", 7.0 * n, group=f"group-{n % 3}", gpus=3 if n % 3 else 1) for n in range(30)]

    def run() -> Any:
        return run_world(
            jobs,
            known,
            spec(nodes=2, gpus_per_node=2),
            chosen(**{config.point: config}),
            occupancy=occupancy,
            profiling=profiling,
            max_attempts=MAX_ATTEMPTS,
            signals=signals,
        )

    world = run()
    ended = attempts_by_job(world)
    assert len(ended) == len(jobs)
    for rows in ended.values():
        assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
        assert not any(row.reached_target for row in rows[:-1])
        assert rows[-1].reached_target or len(rows) == MAX_ATTEMPTS
    told = decisions(world)
    assert {row.policy for row in told if row.point == config.point} <= {config.kind}
    again = run()
    assert attempts(again) == attempts(world)
    assert decisions(again) == told
