"""Sessions whose models start from a zoo."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.clocks import ManualTime
from tests.support.sessions import history, session
from wattkeeper.live import Session
from wattkeeper.policies.configure.fixed import FixedConfig
from wattkeeper.policies.configure.modelkeeper import ModelkeeperParentConfig
from wattkeeper.policies.configure.relative import RelativeParentConfig
from wattkeeper.policies.errors import InputError, PolicyError, StoreError


def test_a_recurrence_starts_from_the_model_of_an_earlier_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import TransferReport, Zoo

    def net(width: int) -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def recur(model: Any, *older: Any, metric: float = 1.0) -> tuple[TransferReport | None, Any]:
        """What the session said, and what the model computed before it was trained."""
        with session(eta=0, target=1.0) as found:
            report = found.warm_start(model, tmp_path / "zoo", older=older)
            begun = model(x).detach()
            for _ in found.epochs():
                with torch.no_grad():
                    model[0].weight += 0.1
                found.report(metric)
        return report, begun

    x = torch.randn(5, 4)
    first, second, wider = net(8), net(8), net(16)
    assert recur(first)[0] is None, "the zoo is empty"
    report, begun = recur(second)
    assert report is not None
    assert report.preserved_in_eval
    assert torch.equal(begun, first(x))
    assert not torch.equal(begun, second(x)), "it was trained, and the zoo has what it was"
    recur(net(8), metric=0.5)
    models = Zoo(tmp_path / "zoo").models()
    assert [model.name for model in models] == ["mine-1.1", "mine-2.1"], "one missed its target"
    assert [model.parent for model in models] == [None, models[0].model_id]
    assert recur(net(12))[0] is None, "nobody said how the older ones are built"
    report, begun = recur(wider, net(8))
    parent = Zoo(tmp_path / "zoo").models()[-1].parent
    source = first if parent == models[0].model_id else second
    assert parent is not None
    assert report is not None
    assert torch.allclose(begun, source(x), atol=1e-5)


def test_any_policy_that_chooses_parents_can_be_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def recur(**terms: Any) -> int | None:
        """Number of the parent."""
        from wattkeeper.live import Zoo

        with session(eta=0, target=1.0) as found:
            found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo", **terms)
            for _ in found.epochs():
                found.report(1.0)
        return Zoo(tmp_path / "zoo").models()[-1].parent

    assert [recur(policy="none"), recur(policy="none")] == [None, None]
    assert recur(policy="lineage") is None, "it is no mutation"
    assert recur(policy="lineage", mutated_from="mine-2.1") == 2
    assert recur(policy="random-parent") in {1, 2, 3, 4}
    assert recur(policy=ModelkeeperParentConfig(minimum=2.0)) is None
    with session(eta=0) as found, pytest.raises(InputError, match=r"'zeus'.*lineage, modelkeeper"):
        found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo", policy="zeus")


def test_the_best_of_the_tried_parents_is_taken(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo

    three = RelativeParentConfig(trials=3)

    def net(width: int) -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def recur(width: int, metric: float, **terms: Any) -> Any:
        with session(eta=0, target=0.5) as found:
            model, older = net(width), [net(other) for other in (4, 6, 8) if other != width]
            report = found.warm_start(model, tmp_path / "zoo", older=older, **terms)
            begun = model.state_dict()["0.bias"].clone()
            for _ in found.epochs():
                with torch.no_grad():
                    model[0].bias.fill_(width)
                found.report(metric)
        return begun, report, Zoo(tmp_path / "zoo").models()[-1].parent

    for width, accuracy in ((4, 0.9), (6, 0.85), (8, 0.8)):
        recur(width, accuracy, policy="none")
    measured = []

    def evaluate(model: Any) -> float:
        """Prefers the parent of 6 units, which none of the policy's measures does."""
        measured.append(model)
        return -abs(float(model[0].bias.detach().max()) - 6)

    begun, report, parent = recur(10, 0.85, policy=three, evaluate=evaluate)
    assert len(measured) == 3
    assert parent == 2
    assert report is not None
    assert begun.max() == 6
    assert Zoo(tmp_path / "zoo").models()[1].uses == 1
    assert [model.uses for model in Zoo(tmp_path / "zoo").models()] == [0, 1, 0, 0]
    recur(10, 0.85, evaluate=evaluate, policy=RelativeParentConfig(trials=2))
    assert len(measured) == 5

    def refuses(facts: str, error: type[Exception] = InputError, **terms: Any) -> None:
        with session(eta=0) as found, pytest.raises(error, match=facts):
            found.warm_start(net(8), tmp_path / "zoo", older=[net(4), net(6), net(10)], **terms)

    refuses("relative has several parents tried.*give `evaluate`", policy=three)
    refuses("relative has no parents tried.*leave it out", evaluate=evaluate)
    refuses("found nan with the weights of", policy=three, evaluate=lambda _: math.nan)
    refuses("found 'good' with the weights of", policy=three, evaluate=lambda _: "good")
    trains = RelativeParentConfig(trials=3, trial_epochs=1)
    refuses("training in trials of parents", PolicyError, policy=trains, evaluate=evaluate)


def test_a_refusal_of_the_zoo_does_not_fail_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    with session(eta=0, max_epochs=1) as found:
        found.warm_start(torch.nn.Linear(4, 2), tmp_path / "zoo")
        for _ in found.epochs():
            found.report(math.nan)
    assert "the zoo did not take mine-1.1: found the task 'mine' and the accuracy nan" in (
        caplog.text
    )
    assert [one["cause"] for one in history()] == ["epochs"]


def test_a_model_that_the_zoo_cannot_keep_is_told_before_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")

    class Complex(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.register_buffer("phases", torch.ones(3, dtype=torch.complex64))

    with session(eta=0, max_epochs=1) as found:
        found.warm_start(Complex(), tmp_path / "zoo")
        assert "the zoo will not take mine-1.1 when it is trained" in caplog.text
        assert "'phases' has the type torch.complex64" in caplog.text
        for _ in found.epochs():
            found.report(0.5)


@pytest.mark.parametrize("first", ["warm_start", "keep"])
def test_a_warm_start_does_not_undo_what_keep_restored(
    first: str, clock: ManualTime, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo
    from wattkeeper.live.weight_transfer.model_graph import trace
    from wattkeeper.live.weight_transfer.program.example_inputs import derive_inputs

    def recur(stops: bool = False) -> tuple[Session, bool, Any]:
        """The session, whether it took something from the zoo, and the weights it began with."""
        model = torch.nn.Linear(4, 2)
        with session(eta=0, target=1.0, configure=FixedConfig()) as found:
            if first == "keep":
                found.keep(model=model)
            report = found.warm_start(model, tmp_path / "zoo")
            if first == "warm_start":
                found.keep(model=model)
            begun = model.weight.detach().clone()
            for epoch in found.epochs(steps=1):
                with torch.no_grad():
                    model.weight += 1
                clock.sleep(0.01)
                found.step()
                if stops and epoch.number == found.assignment.epochs_done + 2:
                    os.kill(os.getpid(), signal.SIGTERM)
                    found.step()
                found.report(0.0 if stops else 1.0)
        return found, report is not None, begun

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        found, took, _ = recur()
        assert (found.reached, took) == (True, False), "the zoo was empty"
        stopped, took, at_first = recur(stops=True)
        assert (stopped.outcome.cause, stopped.outcome.epochs, took) == ("stopped", 1, True)
        other = Zoo(tmp_path / "zoo").models()[0]
        graph = trace(torch.nn.Linear(4, 2), derive_inputs(torch.nn.Linear(4, 2)), "mine").graph
        better = {"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}
        Zoo(tmp_path / "zoo").add(graph, better, task="mine", accuracy=2.0, name="better")
        again, took, at_second = recur()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (again.assignment.recurrence, again.reached, took) == (2, True, False)
    assert torch.equal(at_second, at_first + 2), "what it had become when it was stopped"
    models = {model.name: model for model in Zoo(tmp_path / "zoo").models()}
    assert models["mine-2.1"].parent == other.model_id, "not what is the best parent by now"
    assert models["better"].uses == 0


def test_a_zoo_needs_an_accuracy_and_a_folder_of_its_own(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    (tmp_path / "notes.txt").write_text("no zoo")
    refused = pytest.raises(InputError, match="takes the larger metric")
    with session(eta=0, higher_is_better=False) as found, refused:
        found.warm_start(model, tmp_path / "zoo")
    with session(eta=0) as found, pytest.raises(StoreError, match=r"notes\.txt|no zoo"):
        found.warm_start(model, tmp_path)


@contextmanager
def assigned(
    zoo: Path, parent: str | None = None, job_id: str = "a", **terms: Any
) -> Iterator[Session]:
    """A session whose assignment names a zoo and a parent, as that of a live run does."""
    with session(eta=0, **terms) as found:
        found.assignment = found.assignment._replace(job_id=job_id, zoo=str(zoo), parent=parent)
        yield found


def test_an_assigned_parent_replaces_the_choice_of_a_policy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo

    def recur(job_id: str, parent: str | None) -> bool:
        """Whether the model was filled."""
        with assigned(tmp_path / "zoo", parent, job_id, max_epochs=1) as found:
            report = found.warm_start(torch.nn.Linear(4, 2), tmp_path / "other", policy="zeus")
            for _ in found.epochs():
                found.report(1.0)
        return report is not None

    assert [recur("a", None), recur("b", None), recur("c", "a")] == [False, False, True]
    models = Zoo(tmp_path / "zoo").models()
    assert [(model.name, model.parent) for model in models] == [("a", None), ("b", None), ("c", 1)]
    assert not (tmp_path / "other").exists()


def test_what_an_assigned_parent_lacks_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    small, wide = torch.nn.Linear(4, 2), torch.nn.Linear(4, 8)
    with assigned(tmp_path / "zoo", max_epochs=1) as found:
        found.warm_start(small, "")
        for _ in found.epochs():
            found.report(1.0)
    with assigned(tmp_path / "zoo", "a") as found, pytest.raises(InputError, match=r"'a'.*older="):
        found.warm_start(wide, "")
    with assigned(tmp_path / "zoo", "b") as found, pytest.raises(StoreError, match="'b'"):
        found.warm_start(small, "")


def test_a_run_with_a_zoo_needs_the_model_of_every_attempt(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    refused = pytest.raises(InputError, match=r"warm_start\(\) before epochs\(\)")
    with assigned(tmp_path / "zoo") as found, refused:
        next(found.epochs())
    for metric, why in ((math.nan, "accuracy nan"), (None, "no metric")):
        with assigned(tmp_path / "zoo", max_epochs=1) as found:
            found.warm_start(torch.nn.Linear(4, 2), "")
            for _ in found.epochs():
                if metric is not None:
                    found.report(metric)
        assert found.outcome.cause == "failed", "else others would wait for its weights"
        assert why in found.outcome.message
