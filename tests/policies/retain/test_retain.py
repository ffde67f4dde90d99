"""What `Retain` policies admit and evict."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.points.retain import Retention, StoredModel, StoredModels
from wattkeeper.policies.registry import policies
from wattkeeper.policies.retain._knapsack import cheapest_cover

KINDS = list(policies("retain"))
IN_ORDER = ("lru", "lfu", "gdsf")


class Store:
    """A store in memory."""

    def __init__(self, kind: str, capacity_bytes: int | None) -> None:
        self.policy = policies("retain")[kind].model_validate({}).build()
        self.capacity_bytes = capacity_bytes
        self.models: dict[str, StoredModel] = {}
        self.count = 0

    @property
    def shelf(self) -> StoredModels:
        return StoredModels(self.capacity_bytes, tuple(self.models.values()))

    def new(self, name: str, size: int, accuracy: float = 0.9, task: str = "t") -> StoredModel:
        self.count += 1
        return StoredModel(name, task, accuracy, size, self.count, self.count)

    def add(self, new: StoredModel) -> Retention:
        decision: Retention = self.policy.retain(self.shelf, new)
        for name in decision.evict:
            del self.models[name]
        if decision.admit:
            self.models[new.model_id] = new
        return decision

    def use(self, *names: str) -> None:
        for name in names:
            self.count += 1
            model = self.models[name]
            self.policy.on_use(model)
            self.models[name] = model._replace(uses=model.uses + 1, used=self.count)


def full(kind: str, capacity_bytes: int, **sizes: int) -> Store:
    store = Store(kind, capacity_bytes)
    for name, size in sizes.items():
        assert store.add(store.new(name, size)) == Retention(True)
    return store


TENSORS = {f"tensor-{n}": 5 + 3 * n for n in range(6)}
arrivals = st.tuples(
    st.integers(0, 40),  # bytes of its own
    st.sets(st.sampled_from(sorted(TENSORS)), max_size=3),  # those that it may share
    st.sampled_from([0.1, 0.8, 0.85, 0.9]),
    st.lists(st.integers(0, 20), max_size=4),  # uses of models afterwards
)


def with_shared(store: Store, new: StoredModel, held: dict[str, set[str]]) -> StoredModel:
    """Marks in all views what more than one has."""

    def mark(model: StoredModel) -> StoredModel:
        others = [*store.models, new.model_id]
        shared = [
            (name, TENSORS[name])
            for name in sorted(held[model.model_id])
            if any(name in held[other] for other in others if other != model.model_id)
        ]
        return model._replace(shared=tuple(shared))

    store.models = {name: mark(model) for name, model in store.models.items()}
    return mark(new)


@pytest.mark.parametrize("kind", KINDS)
@given(stream=st.lists(arrivals, max_size=25), capacity=st.one_of(st.none(), st.integers(20, 120)))
def test_the_capacity_holds_and_no_eviction_is_superfluous(
    kind: str, stream: list[Any], capacity: int | None
) -> None:
    store, held, own_bytes = Store(kind, capacity), dict[str, set[str]](), dict[str, int]()
    for number, (own, tensors, accuracy, uses) in enumerate(stream):
        held[f"{number}"], own_bytes[f"{number}"] = tensors, own
        size = own + sum(TENSORS[name] for name in tensors)
        new = with_shared(store, store.new(f"{number}", size, accuracy), held)
        before = store.shelf
        admit, evicted, reason = store.add(new)
        assert admit == (reason == "")
        if capacity is not None:
            names = {name for kept in store.models for name in held[kept]}
            plain = [
                m.size_bytes - sum(TENSORS[n] for n in held[m.model_id])
                for m in store.models.values()
            ]
            assert sum(plain) + sum(TENSORS[name] for name in names) <= capacity
        if before.excess_bytes(new) <= 0:
            assert not evicted
        if not admit:
            assert not evicted, "it had room before"
        if kind in IN_ORDER and evicted:
            assert before.excess_bytes(new, evicted[:-1]) > 0
        for one in evicted if kind == "modelkeeper" else ():
            assert before.excess_bytes(new, set(evicted) - {one}) > 0
        for pick in uses:
            if store.models:
                store.use(list(store.models)[pick % len(store.models)])


def cheapest_by_force(values: list[float], sizes: list[int], need: int) -> float:
    items = range(len(values))
    return min(
        sum(values[at] for at in chosen)
        for count in range(len(values) + 1)
        for chosen in combinations(items, count)
        if sum(sizes[at] for at in chosen) >= need
    )


@given(
    items=st.lists(
        st.tuples(st.sampled_from([0.25, 0.5, 0.99, 1.0, 2.97]), st.integers(1, 30)),
        min_size=1,
        max_size=9,
    ),
    share=st.floats(0, 1),
)
def test_knapsack_is_optimal(items: list[tuple[float, int]], share: float) -> None:
    values, sizes = (list(column) for column in zip(*items, strict=True))
    need = round(share * sum(sizes))
    chosen = cheapest_cover(np.array(values), np.array(sizes), need)
    assert len(set(chosen)) == len(chosen)
    assert sum(sizes[at] for at in chosen) >= need
    lost = sum(values[at] for at in chosen)
    assert lost == pytest.approx(cheapest_by_force(values, sizes, need), rel=1e-12)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=8),
    uses=st.lists(st.integers(0, 7), max_size=12),
    new=st.integers(1, 40),
)
def test_modelkeeper_keeps_the_most_value_that_fits(
    sizes: list[int], uses: list[int], new: int
) -> None:
    capacity = max(sum(sizes), new)
    store = full("modelkeeper", capacity, **{f"m{n}": size for n, size in enumerate(sizes)})
    worth = [0.99 ** (len(sizes) - 1 - n) for n in range(len(sizes))]
    for pick in uses:
        store.use(f"m{pick % len(sizes)}")
        worth[pick % len(sizes)] += 1
    worth = [0.99 * value for value in worth] + [1.0]
    excess = sum(sizes) + new - capacity
    decision = store.add(store.new("new", new))
    gone = [int(name[1:]) for name in decision.evict] + [len(sizes)] * (not decision.admit)
    lost = cheapest_by_force(worth, [*sizes, new], excess)
    assert sum(worth[at] for at in gone) == pytest.approx(lost, rel=1e-12)


def test_modelkeeper_values() -> None:
    store = full("modelkeeper", 100, a=10, b=10)
    store.use("a", "a")
    store.add(store.new("c", 10))
    values = store.policy.state_dict()["value"]
    assert values == pytest.approx({"a": (0.99 + 2) * 0.99, "b": 0.99, "c": 1.0})


def test_modelkeeper_admits_no_outlier_of_a_task() -> None:
    store = Store("modelkeeper", None)
    accuracies = [0.90, 0.92, 0.94]  # mean 0.92, standard deviation 0.01633
    for number, accuracy in enumerate(accuracies):
        assert store.add(store.new(f"{number}", 1, accuracy)).admit
    low = 0.92 - 3 * float(np.std(accuracies))
    refused = store.add(store.new("low", 1, low - 1e-6))
    assert refused.reason.startswith("its accuracy 0.87")
    assert "below the mean of its task, 0.92" in refused.reason
    assert store.add(store.new("other", 1, low - 1e-6, task="other")).admit
    assert store.add(store.new("just", 1, low + 1e-6)).admit


def test_modelkeeper_refuses_none_where_all_accuracies_are_equal() -> None:
    for count in range(1, 12):
        store = full("modelkeeper", 50, **{f"m{n}": 1 for n in range(count)})
        assert store.add(store.new("low", 1, accuracy=0.1)).admit


def test_least_recently_used_goes_first() -> None:
    store = full("lru", 30, a=10, b=10, c=10)
    store.use("a")
    assert store.add(store.new("d", 15)).evict == ("b", "c")


def test_least_frequently_used_goes_first() -> None:
    store = full("lfu", 30, a=10, b=10, c=10)
    store.use("a", "a", "b", "c")
    assert store.add(store.new("d", 10)).evict == ("b",)
    assert store.add(store.new("e", 10)).evict == ("d",)


def test_gdsf_evicts_large_and_unused_ones_and_ages() -> None:
    store = full("gdsf", 100, small=10, large=80)
    assert store.add(store.new("b", 50)).evict == ("large",)
    assert set(store.models) == {"small", "b"}
    state = store.policy.state_dict()
    assert state["clock"] == pytest.approx(1 / 80)
    assert state["priority"] == pytest.approx({"small": 1 / 10, "b": 1 / 50})
    store.use("b")
    assert store.policy.state_dict()["priority"]["b"] == pytest.approx(1 / 80 + 2 / 50)
    refused = store.add(store.new("huge", 95))
    assert not refused.admit, "1/80 + 1/95 is less than 1/80 + 2/50"
    assert set(store.models) == {"small", "b"}


def test_keep_all_refuses_what_does_not_fit() -> None:
    store = full("keep-all", 30, a=10, b=15)
    refused = store.add(store.new("c", 6))
    assert refused == Retention(
        False, (), "1 bytes are missing, the capacity is 30 bytes, and keep-all evicts nothing"
    )
    assert store.add(store.new("d", 5)).admit


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_larger_than_the_store_is_refused_without_eviction(kind: str) -> None:
    store = full(kind, 30, a=10, b=20)
    refused = store.add(store.new("c", 31))
    assert not refused.admit
    assert not refused.evict
    assert "30" in refused.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_tensor_is_counted_once(kind: str) -> None:
    """Models b and c have 60 bytes in common: one of them frees 5 bytes, both together 70."""
    common = (("tensor", 60),)
    store = Store(kind, 100)
    for name, size, shared in (("a", 20, ()), ("b", 65, common), ("c", 65, common)):
        assert store.add(store.new(name, size)._replace(shared=shared)) == Retention(True)
    store.use("a")
    decision = store.add(store.new("d", 40))
    if kind in IN_ORDER:
        assert decision.evict == ("b", "c")
    else:
        assert not decision.admit, "it alone is worth less than b and c"
        assert not decision.evict
