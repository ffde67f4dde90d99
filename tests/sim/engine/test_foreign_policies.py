"""Policies of others: what they raise and answer is explained; what they are shown stays as it is.

In a world here; through the command in `tests/scenarios/cli/test_foreign_policies.py`.
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.messages import assert_states
from tests.support.worlds import by_job, chosen, run_world, spec, steady, stub
from wattkeeper.policies.errors import PolicyError, PolicyFailed
from wattkeeper.policies.points.job import JOB_ATTRIBUTES, NEW, Job
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.points.views import Configuration, Knobs
from wattkeeper.policies.registry import Point
from wattkeeper.scenarios.contract.scripted import job

FIRST_FIT = chosen().place.build()
FIFO = chosen().select.build
COMPILED = hasattr(Job, "__mypyc_attrs__")


def ran(point: Point, **methods: Callable[..., Any]) -> Any:
    """A world with one foreign policy; two jobs, the second one at 5 s."""
    jobs = [job("a"), job("b", 5.0)]
    policy_set = chosen(**{point: stub(point, **methods)})  # type: ignore[arg-type]
    return run_world(jobs, by_job(steady()), spec(gpus_per_node=2), policy_set)


def queue(**methods: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """A queue in order of submission, with some methods replaced."""
    fifo = FIFO()
    names = ("on_submit", "select", "on_end")
    return {name: getattr(fifo, name) for name in names} | methods


def divide(*_: object) -> Any:
    return 1 // 0


def leave(*_: object) -> Any:
    sys.exit(3)


def answer(value: object) -> Callable[..., Any]:
    return lambda *_: value


def start(ctx: Any, start: Any) -> Configuration:
    return Configuration(start.options.default_batch_size)


def pickled(value: Job, protocol: int) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("fails", [divide, leave])
@pytest.mark.parametrize(
    ("point", "method", "where"),
    [
        ("configure", "configure", ("job a", "0 s")),
        ("configure", "observe", ("job a", "10 s")),
        ("configure", "on_submit", ("job a", "0 s")),
        ("tune", "tune", ("job a", "0 s")),
        ("place", "place", ("job a", "0 s")),
        ("select", "select", ("job a", "0 s")),
        ("select", "on_submit", ("job a", "0 s")),
        ("select", "on_end", ("job a", "10 s")),
        ("select", "wake_s", ("0 s",)),
        ("place", "wake_s", ("0 s",)),
    ],
)
def test_what_a_policy_raises_names_it(
    fails: Callable[..., Any], point: Point, method: str, where: tuple[str, ...]
) -> None:
    usual: dict[str, Callable[..., Any]] = {
        "configure": {"configure": start},
        "tune": {},
        "place": {"place": FIRST_FIT.place},
        "select": queue(),
    }[point]
    with pytest.raises(PolicyFailed) as failed:
        ran(point, **usual | {method: fails})
    error = failed.value
    assert error.exit_code == 1
    what = "ZeroDivisionError" if fails is divide else "SystemExit: 3"
    assert_states(str(error), f"{point} policy 'stub'", fails.__name__, *where, what)
    (lines,) = error.__notes__
    assert_states(lines, "test_foreign_policies.py", f"in {fails.__name__}")
    assert "wattkeeper/sim" not in lines
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.__notes__) == (str(error), [lines])


@pytest.mark.parametrize(
    ("point", "method", "value", "facts"),
    [
        ("configure", "configure", 32, ("expected; got int" if COMPILED else "int 32",)),
        ("configure", "configure", Configuration("32"), ("batch_size", "int", "str '32'")),  # type: ignore[arg-type]
        ("configure", "configure", Configuration(32, cost_bound=None), ("cost_bound", "None")),  # type: ignore[arg-type]
        ("configure", "configure", Configuration(32, parent=7), ("parent", "str", "int 7")),  # type: ignore[arg-type]
        ("configure", "configure", Configuration(True), ("batch_size", "int", "bool True")),
        ("configure", "configure", Configuration(10**5000), ("batch_size", "int", "16610 bits")),
        ("tune", "tune", Knobs(10**400), ("power_limit_w", "float", "1329 bits")),
        ("tune", "tune", 250.0, ("expected; got float" if COMPILED else "float 250.0",)),
        ("tune", "tune", Knobs("250"), ("power_limit_w", "float", "str '250'")),  # type: ignore[arg-type]
        ("tune", "tune", Knobs(profile_w=[100.0]), ("profile_w", "tuple", "list")),  # type: ignore[arg-type]
        ("place", "place", None, ("tuple", "None")),
        ("place", "place", [(0, 1, NEW)], ("tuple", "list")),
        ("place", "place", ((0, 1),), ("slot", "(0, 1)")),
        ("place", "place", (("0", 1, NEW),), ("int", "str '0'")),
        ("place", "place", ((False, 1, NEW),), ("int", "bool False")),
        ("place", "place", ((10**5000, 1, NEW),), ("int", "16610 bits")),
        ("select", "select", None, ("Selection", "None")),
        ("select", "select", ((), ()), ("Selection", "tuple")),
        ("select", "select", Selection(("a",)), ("start", "Job", "str 'a'")),  # type: ignore[arg-type]
        ("select", "wake_s", "soon", ("float", "str")),
        ("select", "wake_s", None, ("float", "None")),
    ],
)
def test_an_answer_of_a_wrong_type_names_the_policy(
    point: Point, method: str, value: object, facts: tuple[str, ...]
) -> None:
    usual = queue() if point == "select" else {}
    with pytest.raises(PolicyFailed) as failed:
        ran(point, **usual | {method: answer(value)})
    assert_states(str(failed.value), f"{point} policy 'stub'", "wrong type", "0 s", *facts)


def test_a_policy_may_still_refuse_with_a_message() -> None:
    def refuse(*_: object) -> Any:
        raise PolicyError("no such luck", "select")

    with pytest.raises(PolicyError) as refused:
        ran("select", **queue(select=refuse))
    assert type(refused.value) is PolicyError
    assert str(refused.value) == "no such luck"


def test_an_interruption_is_not_the_policys() -> None:
    def interrupt(*_: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran("select", **queue(select=interrupt))


@pytest.mark.parametrize("gpus", [0, -4, 2])
def test_a_job_cannot_be_changed(gpus: int) -> None:
    """Neither its number of GPUs nor anything else; nor can it be replaced by a copy."""

    def change(ctx: Any, job: Job) -> None:
        job.gpus = gpus  # type: ignore[misc]

    def swap(ctx: Any, capacity: Any) -> Selection:
        return Selection(tuple(each.replace(gpus=gpus) for each in waiting))

    with pytest.raises(PolicyFailed) as failed:
        ran("select", **queue(on_submit=change))
    assert_states(str(failed.value), "AttributeError", "gpus", "job a")
    waiting: list[Job] = []
    with pytest.raises(PolicyError) as refused:
        ran("select", on_submit=lambda ctx, job: waiting.append(job), select=swap)
    assert_states(str(refused.value), "job a", "does not wait")


@pytest.mark.parametrize("name", [*JOB_ATTRIBUTES, "key", "gpus_held"])
def test_no_attribute_of_a_job_can_be_set(name: str) -> None:
    asked = job("a", gpus=3)
    before = repr(asked), asked.key, asked.gpus_held
    with pytest.raises(AttributeError):
        setattr(asked, name, 0)
    with pytest.raises(AttributeError):
        delattr(asked, name)
    with pytest.raises(AttributeError):
        asked.other = 1  # type: ignore[attr-defined]
    assert (repr(asked), asked.key, asked.gpus_held) == before
    assert asked.replace(gpus=1).gpus == 1
    assert type(asked) is Job


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, *(partial(pickled, protocol=n) for n in range(6))]
)
def test_a_job_is_copied_and_pickled(duplicate: Callable[[Job], Job]) -> None:
    """Compiled and in plain Python; the copy cannot be changed either."""
    asked = job("a", 5.0, gpus=3)
    other = duplicate(asked)
    assert other is not asked
    assert (repr(other), other.key, other.gpus_held) == (repr(asked), asked.key, asked.gpus_held)
    with pytest.raises(AttributeError):
        other.gpus = 0  # type: ignore[misc]


def test_a_job_has_no_dictionary_of_attributes() -> None:
    assert not hasattr(job("a"), "__dict__")


@pytest.mark.parametrize("slots", [((0, 1, 10**9),), ((0, 1, 0),), ((0, 1, -2),)])
@pytest.mark.parametrize("gpu_type", [None, "V100"])
def test_a_whole_gpu_has_no_index(slots: Any, gpu_type: str | None) -> None:
    with pytest.raises(PolicyError) as refused:
        run_world(
            [job("a").replace(gpu_type=gpu_type)],
            by_job(steady()),
            spec(),
            chosen(place=stub("place", place=answer(slots))),
        )
    assert refused.value.point == "place"
    assert_states(str(refused.value), "job a", str(slots))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["select", "place"])
def test_a_policy_that_is_woken_without_an_end_is_refused(point: Point) -> None:
    """Also while a job runs, if time hardly passes."""
    wake: dict[str, Callable[..., Any]] = {"wake_s": lambda ctx: ctx.now_s + 1e-9}
    usual = queue() if point == "select" else {"place": FIRST_FIT.place}
    with pytest.raises(PolicyError) as refused:
        ran(point, **usual | wake)
    assert refused.value.point == point
    assert_states(str(refused.value), f"{point} policy 'stub'", "1,000,000 times", "0.001 s")


def test_a_profile_of_millions_of_limits_is_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        ran("tune", tune=lambda *_: Knobs(profile_w=(100.0,) * 4_000_000))
    assert_states(str(caught.value), "4,000,000 power limits", "10,000")
