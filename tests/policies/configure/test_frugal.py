"""The policy `frugal`: what it spends, what it gives up, and what it remembers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.configure.frugal import Frugal, FrugalConfig
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import Configuration, Measurement, Outcome, Running, Start
from wattkeeper.scenarios.contract.scripted import ScriptedContext, job, profile

ANY = profile()
ETA = 0.5
MOST_EPOCHS = 50


class Group:
    """A `Frugal` and one group, whose runs take epochs of the test's own making."""

    def __init__(self, epoch_costs: dict[int, float] | None = None) -> None:
        self.ctx = ScriptedContext(ANY, eta=ETA)
        self.options = self.ctx.options()._replace(max_epochs=MOST_EPOCHS)
        self.policy: Frugal = FrugalConfig().build()
        self.costs = epoch_costs or dict.fromkeys(self.options.batch_sizes, 1000.0)
        self.waiting: dict[str, tuple[Start, Configuration]] = {}
        self.queue = 0.0

    def start(self, name: str, attempt: int = 1) -> Configuration:
        """Start an attempt and train the slices that it asks for."""
        in_flight = len(self.waiting)
        start = Start(job(name, group="g"), attempt, self.options, in_flight, 1.0, self.queue)
        decided = self.policy.configure(self.ctx, start)
        tune = self.policy.tuner()
        measured: list[Measurement] = []
        while True:
            knobs = tune.tune(self.ctx, Running(start, decided, tuple(measured), "profiled"))
            assert knobs is not None
            if knobs.slice is None:
                break
            measured.append(self._measure(decided.batch_size, knobs.slice.power_limit_w))
        self.waiting[name] = start, decided
        return decided

    def _measure(self, size: int, limit_w: float) -> Measurement:
        power_w = min(limit_w, 0.8 * self.options.max_power_w)
        watts = ETA * power_w + (1 - ETA) * self.options.max_power_w
        return Measurement(limit_w, self.costs[size] / watts, power_w, 0, size, 2.0, 2 * power_w)

    def end(self, name: str, epochs: float) -> bool:
        """End it after so many epochs (infinite: never), or at its bound."""
        start, decided = self.waiting.pop(name)
        size = decided.batch_size
        most: float = self.options.max_epochs
        if math.isfinite(decided.cost_bound):
            most = min(most, decided.cost_bound // self.costs[size])
        reached = epochs <= most
        done = int(min(epochs, most))
        cost = done * self.costs[size]
        if reached:
            self._measure_others(start, decided, cost)
        self.policy.observe(
            self.ctx, Outcome(start, size, self.options.max_power_w, done, cost, 0.0, cost, reached)
        )
        return reached

    def _measure_others(self, start: Start, decided: Configuration, cost: float) -> None:
        """Train the slices of other batch sizes that it asks for, after a run of some cost, J."""
        measured: tuple[Measurement, ...] = ()
        progress = Progress(0.0, 0.0, cost / ((1 - ETA) * self.options.max_power_w), 0.0)
        tune = self.policy.tuner()
        while True:
            knobs = tune.tune(self.ctx, Running(start, decided, measured, "reached", progress))
            if knobs is None or knobs.slice is None:
                return
            size = knobs.slice.batch_size
            assert size is not None
            assert size != decided.batch_size
            measured += (self._measure(size, knobs.slice.power_limit_w),)

    def spare(self) -> float:
        """What the policy may still spend on trials, J, by its own accounts."""
        (state,) = self.policy.state_dict().values()
        ((_, own),) = state["learnt"]
        under_way = math.fsum(excess for *_, excess, _ in state["under_way"])
        share = 1 + 0.3 / max(1, own["recurrences"]) + 0.03
        return float(share * own["default"] - own["paid"] - under_way)


results = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.integers(1, 30), st.just(math.inf))), max_size=25
)


@given(results)
def test_trials_stay_within_what_may_be_spent(results: Sequence[tuple[int, float]]) -> None:
    """Also of jobs that run side by side: a trial starts only if all of them may be paid."""
    group = Group()
    names: list[str] = []
    for number, (others, epochs) in enumerate(results):
        name = f"job{number}"
        decided = group.start(name)
        names.append(name)
        if math.isfinite(decided.cost_bound):
            assert group.spare() >= -1e-6
            assert decided.cost_bound > 0
        if len(names) > others:
            group.end(names.pop(0), epochs)


def test_the_cheapest_batch_size_is_found_and_kept() -> None:
    costs = {size: 30_000.0 * (1 + 0.5 * index) for index, size in enumerate(ANY.curves)}
    group = Group(costs)
    best = next(iter(ANY.curves))
    chosen = []
    for number in range(40):
        name = f"job{number}"
        chosen.append(group.start(name).batch_size)
        if not group.end(name, 12):
            group.start(name, attempt=2)
            assert group.end(name, 12), "a retry takes a batch size that reaches the target"
    assert chosen[0] == ANY.default_batch_size
    assert chosen[-10:] == [best] * 10


def test_a_batch_size_that_reaches_its_target_no_more_is_left() -> None:
    """A group whose best batch size stops converging takes another one soon."""
    group = Group()
    for number in range(30):
        group.start(f"before{number}")
        group.end(f"before{number}", 12)
    usual = group.start("last").batch_size
    group.end("last", 12)
    attempts = 0
    for number in range(10):
        name, attempt = f"after{number}", 1
        while True:
            size = group.start(name, attempt).batch_size
            attempts += 1
            if group.end(name, math.inf if size == usual else 14):
                break
            attempt += 1
            assert attempt <= 20, "a job is given up after so many"
    assert attempts < 20
    assert size != usual


def test_a_trial_may_pay_slices_but_no_further_epoch() -> None:
    """Also a long one, of which 3 % are more than half an epoch."""
    group = Group()
    bounds = []
    for number in range(12):
        decided = group.start(f"job{number}")
        group.end(f"job{number}", 45)
        (state,) = group.policy.state_dict().values()
        ((_, own),) = state["learnt"]
        if math.isfinite(decided.cost_bound) and decided.batch_size in dict(own["points"]):
            bounds.append(decided.cost_bound / group.costs[decided.batch_size])
    assert max(bounds) > 17
    assert all(0.5 <= bound % 1 < 0.95 for bound in bounds)


def own_account(group: Group) -> dict[str, float]:
    (state,) = group.policy.state_dict().values()
    ((_, own),) = state["learnt"]
    return {name: own[name] for name in ("paid", "default", "recurrences")}


def test_runs_that_fail_before_any_reached_are_paid() -> None:
    group = Group()
    group.start("a")
    group.end("a", math.inf)
    failed = MOST_EPOCHS * 1000.0
    assert own_account(group)["paid"] == failed
    group.start("a", attempt=2)
    group.end("a", math.inf)
    assert own_account(group)["paid"] == 2 * failed
    assert own_account(group)["recurrences"] == 1


def test_a_job_counts_once_though_its_first_attempt_was_lost() -> None:
    """An accident is repeated as the next attempt, about which nobody is asked."""
    group = Group()
    group.start("a")
    start, decided = group.waiting.pop("a")
    again = start._replace(attempt=2), decided
    group.waiting["a"] = again
    group.end("a", 12)
    assert own_account(group)["recurrences"] == 1
    assert own_account(group)["default"] > 0


def test_a_run_that_was_lost_is_not_awaited() -> None:
    group = Group()
    for number in range(3):
        group.start(f"job{number}")
    start, _ = group.waiting.pop("job1")
    group.policy.on_loss(group.ctx, start)
    (state,) = group.policy.state_dict().values()
    assert [name for name, *_ in state["under_way"]] == ["job0", "job2"]


def test_of_runs_that_were_left_for_good_the_oldest_is_forgotten() -> None:
    """Also once the state was stored as JSON with sorted keys, as sessions store it."""
    group = Group()
    for name in ("job9", "job10", "job11"):
        group.start(name)
    kept = json.loads(json.dumps(group.policy.state_dict(), sort_keys=True))
    group.policy.load_state_dict(kept)
    del group.waiting["job9"]
    group.start("job12")
    (state,) = group.policy.state_dict().values()
    assert [name for name, *_ in state["under_way"]] == ["job10", "job11", "job12"]


@pytest.mark.parametrize("waiting", [0.0, 4.0])
def test_limits_that_were_too_dear_under_a_queue_are_measured_later(waiting: float) -> None:
    """While many wait, low limits are not worth a slice; they are once nobody does."""
    group = Group()
    group.policy = FrugalConfig(waiting=1).build()
    group.queue = waiting
    group.start("a")
    group.end("a", 30)
    group.queue = 0.0
    group.start("b")
    group.end("b", 30)
    group.start("c")
    (state,) = group.policy.state_dict().values()
    ((_, own),) = state["learnt"]
    points = dict(own["points"])[32]
    assert sorted(limit_w for limit_w, *_ in points) == [100.0, 150.0, 250.0]


def test_a_gang_weighs_the_waiting_for_all_its_gpus() -> None:
    """One job that waits for each GPU, and 3 GPUs held: an own second counts four times."""
    policy = FrugalConfig(waiting=1).build()
    ctx = ScriptedContext(ANY, eta=ETA)
    options = ctx.options()._replace(gpus=3)
    start = Start(job("a", group="g"), 1, options, 0, 1.0, 1.0)
    assert policy._eta(ctx, start) == pytest.approx(0.5 / (0.5 + 0.5 * 4))


@given(results)
def test_equal_runs_and_a_restored_state_decide_alike(results: Sequence[tuple[int, float]]) -> None:
    first, second = Group(), Group()
    for number, (_, epochs) in enumerate(results):
        name = f"job{number}"
        assert first.start(name) == second.start(name)
        first.end(name, epochs)
        second.end(name, epochs)
        state = json.loads(json.dumps(second.policy.state_dict(), sort_keys=True))
        assert state == json.loads(json.dumps(first.policy.state_dict()))
        assert len(json.dumps(state)) < 6000
        second.policy = FrugalConfig().build()
        second.policy.load_state_dict(state)
