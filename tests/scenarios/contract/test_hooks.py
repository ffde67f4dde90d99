"""Every hook that a policy declares is called as docs/policy.md says, in both backends."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.elastic import BUSY_W, IDLE_W, run_elastic, task
from tests.support.messages import assert_states
from tests.support.worlds import attempts, chosen
from wattkeeper.live.pipeline.plan_chooser import PlanChooser
from wattkeeper.live.zoo.zoo import Zoo
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import POINTS, Point, PolicyConfig, policies
from wattkeeper.scenarios.contract.new_policy import EXAMPLES, class_name, read_example
from wattkeeper.scenarios.contract.scripted import example, job, scripted_signal
from wattkeeper.scenarios.contract.trials import load_trial, rehearse_live
from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import LoadedScenario, use_policy_files
from wattkeeper.scenarios.spec.policy_files import PolicyFile
from wattkeeper.sim.cluster.losses import NodeChange

LISTENER = '''

class Listener({name}):
    """It decides as the example, and takes down what it is told."""

    heard = []

{methods}

class ListenerConfig({name}Config):
    """It takes down what it is told."""

    kind: Literal["listener"] = "listener"
    policy = Listener
'''
METHOD = '''\
    def {hook}(self, *told):
        """Take it down."""
        self.heard.append(("{hook}", told[-1]))
        super().{hook}(*told)
'''


class Listener:
    """A policy that takes down what it is told: its config, its file, and what that was."""

    def __init__(self, point: Point, folder: Path) -> None:
        hooks = [name for name in dir(POINTS[point].base) if name == "observe" or name[:3] == "on_"]
        methods = "\n".join(METHOD.format(hook=hook) for hook in hooks)
        name = class_name(EXAMPLES[point])
        source = read_example(point) + LISTENER.format(name=name, methods=methods)
        path = str(folder / "listener.py")
        self.file = PolicyFile(path, path, source)
        use_policy_files([self.file])
        part = policies(point)["listener"]
        self.config: PolicyConfig = example(part)
        self.heard: list[tuple[str, Any]] = part.policy.heard

    def of(self, hook: str) -> list[Any]:
        """What a hook was told of."""
        return [told for name, told in self.heard if name == hook]


@pytest.fixture
def listen(tmp_path: Path) -> Callable[[Point], Listener]:
    return lambda point: Listener(point, tmp_path)


BACKENDS: dict[str, Callable[[LoadedScenario], ScenarioResult]] = {
    "simulated": run,
    "live": rehearse_live,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", [point for point in POINTS if point != "replan"])
def test_hooks_are_called_in_runs(
    point: Point, backend: str, listen: Callable[[Point], Listener]
) -> None:
    listener = listen(point)
    result = BACKENDS[backend](load_trial(listener.config, [listener.file]))
    rows = result.table("jobs").to_pylist()
    jobs = sorted({row["job_id"] for row in rows})
    assert len(jobs) == 6
    assert sorted(told.job_id for told in listener.of("on_submit")) == jobs
    told = sorted((o.start.job.job_id, o.start.attempt, o.reached) for o in listener.of("observe"))
    assert told == sorted((row["job_id"], row["attempt"], row["reached_target"]) for row in rows)
    if point == "select":
        assert sorted(told.job_id for told in listener.of("on_end")) == jobs
    if point == "retain":
        parents = Counter(row["parent_model"] for row in rows if row["parent_model"] is not None)
        assert parents
        assert Counter(model.model_id for model in listener.of("on_use")) == parents


@pytest.mark.parametrize("point", ["configure", "select", "place", "tune", "replan"])
def test_jobs_without_a_configuration_are_observed(
    point: Point, listen: Callable[[Point], Listener]
) -> None:
    """An elastic job that lost a node, and one of recorded duration."""
    listener = listen(point)
    listens: dict[str, Any] = {"replan": listener.config}
    if point != "replan":
        listens = {"policy_set": chosen(**{point: listener.config})}
    changes = [NodeChange(20.0, "down", 0), NodeChange(25.0, "up", 0)]
    signals = {name: scripted_signal(name) for name in listener.config.signals}
    bare = job("bare", 1.0, workload=None, duration_s=7.0)
    listens |= {"signals": signals, "others": [bare]}
    world = run_elastic([task()], changes, samples=100.0, nodes=5, **listens)
    assert [told.job_id for told in listener.of("on_submit")] == ["e", "bare"]
    outcomes: dict[str, Outcome] = {o.start.job.job_id: o for o in listener.of("observe")}
    assert len(listener.of("observe")) == 2
    for outcome in outcomes.values():
        assert (outcome.batch_size, outcome.epochs, outcome.reached) == (0, 0, True)
        assert math.isnan(outcome.power_limit_w)
        most_w = outcome.start.options.max_power_w
        assert most_w == BUSY_W
    recorded, elastic = outcomes["bare"], outcomes["e"]
    assert (recorded.time_s, recorded.energy_j) == (7.0, 7.0 * BUSY_W)
    assert recorded.cost == 7.0 * BUSY_W
    assert recorded.start.learning_key == "bare@V100x1"
    rows = [row for row in attempts(world) if row.job_id == "e"]
    assert len(rows) > 1
    assert elastic.start.attempt == rows[-1].attempt
    for name in ("time_s", "cost"):
        assert getattr(elastic, name) == pytest.approx(sum(getattr(row, name) for row in rows))
    idle_j = sum(row.overhead_s * IDLE_W * len(row.node_ids) for row in rows)
    assert elastic.energy_j == pytest.approx(sum(row.energy_j for row in rows) - idle_j)


def test_a_live_elastic_training_tells_its_policy(
    listen: Callable[[Point], Listener], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from tests.support.elastic_training import STEPS, train

    listener = listen("replan")
    results = train(tmp_path, STEPS, replan=listener.config)
    ((_, submitted), (_, outcome)) = listener.heard
    assert outcome.start.job is submitted
    assert outcome.reached
    assert outcome.time_s == pytest.approx(sum(shape.steps_s for shape in results.shapes))


def test_the_session_of_a_pipeline_tells_its_policy(listen: Callable[[Point], Listener]) -> None:
    listener = listen("tune")
    with pytest.raises(PolicyError, match="the signal price, which a pipeline's session"):
        PlanChooser("mine", "gpu", 100, listener.config, lambda: 7.0)


def test_a_zoo_on_disk_refuses_a_policy_that_wants_to_be_told_of_jobs(
    listen: Callable[[Point], Listener], tmp_path: Path
) -> None:
    listen("retain")
    with pytest.raises(PolicyError) as refused:
        Zoo(tmp_path / "zoo", retain="listener")
    assert_states(str(refused.value), "'listener'", "on_submit", "observe", "a zoo on disk")
