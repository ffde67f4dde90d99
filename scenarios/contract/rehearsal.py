"""Puts one policy through a stream of starts and outcomes, and checks all that it decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

from wattkeeper.policies.elastic.replanning import (
    ElasticTask,
    ElasticView,
    ReplanMoment,
    Reshape,
    Shape,
    check_reshape,
)
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.moments import Progress
from wattkeeper.policies.protocols import (
    CapacityView,
    Configuration,
    Job,
    Measurement,
    Outcome,
    Placement,
    Running,
    Selection,
    Start,
    ZooView,
)
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.retaining import Retention, StoredModel, StoredModels, check_retention
from wattkeeper.scenarios.contract.answers import (
    check_configuration,
    check_knobs,
    check_placement,
    check_selection,
    is_plain,
    measure,
    require_type,
)
from wattkeeper.scenarios.contract.breach import ContractBreach, require
from wattkeeper.scenarios.contract.scripted import GPU, NEVER, ScriptedContext, job, profile
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

GROUPS: Final = 3
NODES: Final = 3
GPUS_PER_NODE: Final = 2
CAPACITY_BYTES: Final = 100
MAX_ATTEMPTS: Final = 3
MOST_SLICES: Final = 50
ELASTIC: Final = ElasticTask(
    "gpt", 3, (0.0, 0.0, 0.0, 0.0, *(5.0 * n**0.9 for n in range(4, 13))), 64.0, 2.0,
    tuple(20.0 + n for n in range(13)), 3.0,
)  # fmt: skip
"""It holds 3 nodes at least, trains on 4 to 12, and writes a checkpoint in 2 s."""
SIZES: Final[Mapping[int, tuple[float, ...]]] = {
    16: (3.0, NEVER, 4.0),
    32: (3.0, 2.0, NEVER),
    64: (NEVER, 2.0),
    128: (NEVER,),
}

Step = tuple[Literal["submit", "end"], int]

CHANGED: Final = "changes what it is shown"

SILENT: Final = ("observe", "on_submit", "on_end", "on_refuse", "on_use")
"""Methods that answer nothing."""


class Watch:
    """Calls the methods of a policy, and refuses that it changes what it is shown."""

    def call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method, which is called `name` in messages."""
        shown = show(arguments)
        answer = method(*arguments)
        if show(arguments) != shown:
            self.refuse(CHANGED, name)
        return answer

    def refuse(self, message: str, method: str = "") -> None:
        """Refuse what a policy did.

        Raises:
            ContractBreach: Always; a subclass may note it instead.
        """
        raise ContractBreach(message, method)


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
        numbers = {other.number for other in without}
        known = numbers <= self._running.keys() and len(numbers) == len(without)
        require(known, "asks whether a job fits without others that do not run", "select")
        return job.gpus <= self.free_gpus + sum(other.gpus for other in without)


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
        zoo: Models to start from; None: there are none.
        watch: Calls the methods.
        recorded: Attributes of jobs that their log recorded; multiples of this value.

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
    ) -> None:
        self.config = config
        self.watch = watch or Watch()
        self.policy = self._build()
        self.ctx = self.context(seed, config=config, refuse=self.watch.refuse)
        if zoo is not None:
            self.ctx.zoo = zoo
        self.cluster = Cluster(ClusterSpec.uniform(GPU, NODES, GPUS_PER_NODE, 20.0, 250.0))
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
        self.recorded = recorded
        self.go_on(stream[:cut])
        if cut is not None:
            self._cut(restart)
            self.go_on(stream[cut:])

    @staticmethod
    def context(seed: int = 1, **settings: Any) -> ScriptedContext:
        """A context of the profile that attempts have."""
        return ScriptedContext(profile(runs=SIZES, max_epochs=5), seed, **settings)

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

    def take_state(self) -> dict[str, Any]:
        """The policy's state."""
        taken: dict[str, Any] = self.watch.call("state_dict", self.policy.state_dict)
        require_type(taken, dict, "state_dict")
        return taken

    @property
    def state(self) -> str:
        """The policy's state as JSON."""
        taken = self.take_state()
        try:
            return json.dumps(taken, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError) as error:
            what = f"holds what JSON cannot: {find_unsuitable(taken) or error}"
            raise ContractBreach(what, "state_dict") from None

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.watch.call("load_state_dict", self.policy.load_state_dict, state)

    def _build(self) -> Any:
        return self.watch.call("build", self.config.build)

    def _cut(self, restart: bool) -> None:
        while self.config.point == "select" and (self.flights or self.waiting):
            self.ctx.now_s += 1.0
            self._end(0)
            self._pass()
        if restart:
            kept = self.state  # sorted, as sessions store it
            self.policy = self._build()
            self.load_state(json.loads(kept))

    def _ask(self, method: str, *views: Any) -> Any:
        self.calls += 1
        context = () if method in ("retain", "on_use") else (self.ctx,)
        policy = self.policy
        if method == "tune" and self.config.tunes:
            policy = policy.tuner()
        answer = self.watch.call(method, getattr(policy, method), *context, *views)
        if method in SILENT:
            require(answer is None, "answered {!r:.100}; it answers nothing", method, answer)
        else:
            self.decisions.append(_describe(answer))
        return answer

    def _submit(self, group: int) -> None:
        self.submitted[group] += 1
        recurrence = self.submitted[group]
        name = f"group-{group}"
        new = job(f"{name}/{recurrence}", self.ctx.now_s, group=name, recurrence=recurrence)
        number = sum(self.submitted) - 1
        gpus = 1 + (group + recurrence) % 4
        known = {name: value * (1 + number % 5) for name, value in self.recorded.items()}
        new = new.replace(gpus=gpus, number=number, user=name, **known)
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
                what = "starts {}, which does not fit"
                require(capacity.fits(new), what, "select", new.job_id)
                _, attempt = self.waiting.pop(new.number)
                self._start(new, attempt, ())
        if self.config.point == "select":
            wake_s = self._ask("wake_s")
            later = is_plain(wake_s) and wake_s > self.ctx.now_s
            what = "answered {!r} at {:g} s; needed: a later time"
            require(later, what, "wake_s", wake_s, self.ctx.now_s)
            what = "starts none of the jobs, although nothing runs: they would wait for ever"
            require(bool(self.flights) or not self.waiting, what, "select")

    def _place(self, new: Job) -> Placement:
        if self.config.point != "place":
            return ()
        before = self.state
        placement: Placement = self._ask("place", new, self.cluster)
        check_placement(new, self.cluster, placement)
        what = "changes the state, although it is also asked hypothetically"
        require(self.state == before, what, "place")
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
            self._check_slice(flight)
            flight.measured += (measure(self.ctx.known, curve.batch_size, knobs.slice),)
            knobs = self._ask(
                "tune", Running(flight.start, flight.configuration, flight.measured, "profiled")
            )
            check_knobs(limits, knobs, reported=True)
        if knobs.profile_w:
            times = zip(curve.time_per_epoch_s, curve.average_power_w, strict=True)
            points = dict(zip(curve.limits_w, times, strict=True))
            report = tuple(Measurement(limit, *points[limit]) for limit in knobs.profile_w)
            knobs = self._ask("tune", Running(flight.start, flight.configuration, report))
            check_knobs(limits, knobs, reported=True)
        require(knobs.power_limit_w is not None, "never answers with a power limit", "tune")
        return float(knobs.power_limit_w or 0.0)

    def _check_slice(self, flight: Flight) -> None:
        require(self.config.slices, "asks for a slice, but its config has no `slices`", "tune")
        few = len(flight.measured) < MOST_SLICES
        require(few, "asks for more than {} slices of one attempt", "tune", MOST_SLICES)

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
        options = flight.start.options
        while True:
            knobs = self._ask("tune", Running(
                flight.start, flight.configuration, flight.measured, "reached", done
            ))  # fmt: skip
            if knobs is None or knobs.slice is None:
                require(knobs is None, "answered {!r}; needed: a slice, or None", "tune", knobs)
                return
            size, limit_w = knobs.slice.batch_size, knobs.slice.power_limit_w
            known = size in options.batch_sizes and limit_w in options.limits(size)
            require(known, "asks for {!r}, which is no option", "tune", knobs.slice)
            self._check_slice(flight)
            flight.measured += (measure(self.ctx.known, size, knobs.slice),)

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
        if answer is None:
            require(moment == "gained", "answered None at the moment {!r}", "replan", moment)
            return None
        require_type(answer, Reshape, "replan")
        numbers = (answer.pause_s, answer.shape.rate, answer.shape.write_s)
        plain = all(map(is_plain, numbers))
        require(plain, "has a number that is not plain: {!r}", "replan", answer)
        _allow("replan", check_reshape, answer, view)
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
        require_type(decision, Retention, "retain")
        admit, evict = decision.admit, decision.evict
        require(type(admit) is bool, "answered admit={!r}; needed: a bool", "retain", admit)
        told = admit == (not decision.reason)
        require(told, "gives no reason for a refusal, or one for an admission", "retain")
        _allow("retain", check_retention, shelf, new, decision)
        require(len(set(evict)) == len(evict), "evicts a model twice: {!r}", "retain", evict)
        for name in evict:
            del self.stored[name]
        if admit:
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


def show(arguments: Sequence[Any]) -> str:
    """All that a policy sees, as text that changes with it."""
    inside: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Cluster):
            shared = [dict(argument.shared(node)) for node in range(argument.spec.nodes)]
            inside.append((argument.free.tolist(), shared))
        elif isinstance(argument, ScriptedContext):
            inside.append((argument.now_s, argument.shown))
    return repr((arguments, inside))


def _describe(answer: object) -> str:
    """An answer as text; of jobs, their ids."""
    if not isinstance(answer, Selection) or {type(answer.start), type(answer.preempt)} != {tuple}:
        return repr(answer)
    started, preempted = ([getattr(job, "job_id", job) for job in jobs]
                          for jobs in (answer.start, answer.preempt))  # fmt: skip
    return f"Selection({started!r}, {preempted!r})"


def _allow(method: str, check: Callable[..., Any], *arguments: Any) -> None:
    """Check an answer as the world does; what that refuses is a breach."""
    try:
        check(*arguments)
    except (PolicyError, TypeError) as error:
        raise ContractBreach(str(error), method) from None


def find_unsuitable(value: object, path: str = "state_dict()") -> str:
    """The first part of a state that JSON cannot hold, and where it is; empty if there is none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if type(key) is not str:
                return f"{path} has the key {key!r} ({type(key).__name__}); keys are text"
            if found := find_unsuitable(inner, f"{path}[{key!r}]"):
                return found
        return ""
    if isinstance(value, list | tuple):
        inside = (find_unsuitable(inner, f"{path}[{n}]") for n, inner in enumerate(value))
        return next(filter(None, inside), "")
    if isinstance(value, float) and (value != value or value in (NEVER, -NEVER)):
        return f"{path} is {value!r}, which is no number of JSON"
    if value is None or type(value) in (bool, int, float, str):
        return ""
    return f"{path} is a {type(value).__name__}: {value!r:.80}"
