"""Choosing a parent: what each `Configure` policy takes from the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.parents import Candidate, choose
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.matching.benefit import expected_saving, saving_by_accuracy
from wattkeeper.policies.matching.choice import Rule
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.matchers import MATCHERS
from wattkeeper.policies.matching.relation import relate, retained_share
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Configuration, Options, ParentTrial, Start, TrialKind
from wattkeeper.policies.registry import find_config, policies
from wattkeeper.policies.zoo_parents import candidates
from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
from wattkeeper.scenarios.contract.scripted import ScriptedContext, job, profile
from wattkeeper.sim.attempts.validation import check_parents

NO_PROFILE = Options("none", "V100", 1, (), (), 0, 250.0, 1)


class Models:
    """A zoo of some models, and the one model that is about to be trained."""

    def __init__(self, about_to: ChildModel | None, trained: Sequence[TrainedModel]) -> None:
        self._child = about_to
        self._trained = trained

    def child(self, job: Job) -> ChildModel | None:
        """The same for all jobs."""
        return self._child

    def models(self) -> Sequence[TrainedModel]:
        """All that was given."""
        return self._trained

    def work_left(self, job: Job, parent: str) -> float:
        """A half with any of them."""
        assert any(model.model_id == parent for model in self._trained)
        return 0.5


def chain(*widths: int) -> Graph:
    """Linear layers one after the other; the first width is that of the input."""
    nodes = [
        Node("linear", (at - 1,), (Tensor("", "weight", (there, here)),))
        for at, (here, there) in enumerate(pairwise(widths))
    ]
    return Graph("x".join(map(str, widths)), tuple(nodes))


def trained(at: int, graph: Graph, accuracy: float = 0.9, task: str = "digits") -> TrainedModel:
    return TrainedModel(f"m{at}", f"{graph.name}/{at}", task, accuracy, graph)


def configure(
    kind: str, child: ChildModel | None, there: Sequence[TrainedModel], **settings: Any
) -> Configuration:
    """What a policy chooses for the job of a model."""
    policy = policies("configure")[kind].model_validate({"kind": kind, **settings}).build()
    ctx = ScriptedContext(profile())
    ctx.zoo = Models(child, there)
    found: Configuration = policy.configure(ctx, Start(job(), 1, NO_PROFILE, 0))
    return found


PARENTS = [
    trained(1, chain(8, 16, 4)),
    trained(2, chain(8, 16, 16, 4), 0.91),
    trained(3, chain(8, 32, 32, 4), 0.92),
    trained(4, chain(8, 16, 16, 4), 0.93),
    trained(5, chain(8, 16, 16, 4), 0.99, "letters"),
]
CHILD = ChildModel("new", "digits", chain(8, 16, 16, 4), "8x16x4/1")
WITH_PARENTS = ("relative", "modelkeeper", "lineage", "random-parent")


def test_each_policy_takes_its_parent() -> None:
    assert configure("none", CHILD, PARENTS).parent is None
    assert configure("lineage", CHILD, PARENTS).parent == "m1"
    assert configure("modelkeeper", CHILD, PARENTS, query_s=8) == Configuration(
        0, parent="m4", query_s=8.0
    )
    assert configure("relative", CHILD, PARENTS).parent == "m4"
    assert configure("random-parent", CHILD, PARENTS).parent in {"m1", "m2", "m3", "m4"}


def test_the_most_promising_parents_are_tried() -> None:
    """Models of one architecture have one candidate, the most accurate."""
    chosen = configure("relative", CHILD, PARENTS, trials=3, trial_epochs=2, query_s=1)
    rest = [model for model in PARENTS[:4] if model.model_id != "m2"]
    best = max(model.accuracy for model in PARENTS[:4])

    def promise(model: TrainedModel) -> float:
        relation = relate(model.graph, CHILD.graph)
        return expected_saving(relation) + saving_by_accuracy(model.accuracy, best)

    ranked = [model.model_id for model in sorted(rest, key=promise, reverse=True)]
    assert chosen.parents == tuple(ranked)
    assert chosen.trial == ParentTrial(tuple(ranked[1:]), 2)
    assert chosen.query_s == 1
    assert configure("relative", CHILD, PARENTS, trials=9).parents == tuple(ranked)
    assert configure("relative", CHILD, PARENTS, trials=2).parents == tuple(ranked[:2])
    assert configure("relative", CHILD, PARENTS[:1], trials=3) == Configuration(0, parent="m1")
    worst = promise(rest[[model.model_id for model in rest].index(ranked[2])])
    assert configure("relative", CHILD, PARENTS, trials=3, minimum=worst).parents == tuple(
        ranked[:2]
    )


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": 65}, "trials"),
        ({"trials": 2, "trial_epochs": -1}, "trial_epochs"),
        ({"trial_epochs": 1}, "trials: 3"),
    ],
)
def test_trials_that_try_nothing_are_refused(settings: dict[str, int], facts: str) -> None:
    with pytest.raises(InputError, match=facts):
        find_config("configure", "relative", settings)


def test_trials_are_declared_and_of_several_parents() -> None:
    fine = Configuration(0, parent="a", trial=ParentTrial(("b",), 0))
    check_parents(job(), fine, "evaluated")
    check_parents(job(), fine._replace(trial=ParentTrial(("b", "c"), 2)), "trained")
    refused: tuple[tuple[ParentTrial, str | None, TrialKind], ...] = (
        (ParentTrial(("b",), 0), "a", "none"),
        (ParentTrial(("b",), 1), "a", "evaluated"),
        (ParentTrial(("b",), -1), "a", "trained"),
        (ParentTrial(("b", "a"), 0), "a", "trained"),
        (ParentTrial((), 0), "a", "trained"),
        (ParentTrial(("b",), 0), None, "trained"),
    )
    for trial, parent, declared in refused:
        with pytest.raises(PolicyError, match="trial"):
            check_parents(job(), Configuration(0, parent=parent, trial=trial), declared)


@pytest.mark.parametrize("kind", WITH_PARENTS)
def test_no_parent_is_chosen_where_nothing_fits(kind: str) -> None:
    other = ChildModel("new", "speech", CHILD.graph, "8x16x4/1")
    for child, there in ((None, PARENTS), (CHILD, []), (other, PARENTS)):
        assert configure(kind, child, there) == Configuration(0)


def test_a_mutation_of_an_evicted_model_has_no_parent() -> None:
    assert configure("lineage", CHILD, PARENTS[1:]).parent is None
    assert configure("lineage", CHILD._replace(mutated_from=None), PARENTS).parent is None


def test_the_minimum_excludes_dissimilar_models() -> None:
    narrow = ChildModel("new", "digits", chain(8, 400, 400, 4))
    one = [trained(1, Graph("conv", (Node("conv1d", (-1,), (Tensor("", "weight", (3, 3, 3)),)),)))]
    by = {"matcher": "coverage"}
    assert configure("modelkeeper", narrow, one, **by).parent is None
    assert configure("modelkeeper", narrow, one, **by, minimum=0).parent == "m1"
    assert configure("relative", narrow, one).parent is None


def test_ties_in_coverage_go_to_the_parent_that_loses_least() -> None:
    """A more accurate model of twice the width fills the child too, but is cut down for it."""
    same, wide = trained(1, CHILD.graph, 0.8), trained(2, chain(8, 32, 32, 4), 0.9)
    assert retained_share(same.graph, CHILD.graph) == 1
    assert 0 < retained_share(wide.graph, CHILD.graph) < 1
    by = {"matcher": "coverage"}
    assert configure("modelkeeper", CHILD, [same, wide], **by).parent == "m1"
    assert configure("modelkeeper", CHILD, [same, wide], **by, rule="bucketed").parent == "m2"


def test_the_published_matcher_finds_no_parent_of_other_widths() -> None:
    """It compares shapes for equality, and is the default, as published."""
    narrow = trained(1, chain(8, 12, 12, 4))
    assert configure("modelkeeper", CHILD, [narrow]).parent is None
    assert configure("modelkeeper", CHILD, [narrow], matcher="coverage").parent == "m1"
    assert configure("relative", CHILD, [narrow]).parent == "m1"


def test_a_relative_whose_function_can_be_kept_comes_before_one_that_is_cut() -> None:
    shallow, cut = trained(1, chain(8, 16, 4)), trained(2, chain(8, 32, 16, 4), 0.91)
    assert relate(shallow.graph, CHILD.graph).kept == "kept"
    assert relate(cut.graph, CHILD.graph).kept == "partly"
    assert configure("relative", CHILD, [cut, shallow]).parent == "m1"
    bad = shallow._replace(accuracy=0.1)
    assert configure("relative", CHILD, [cut, bad]).parent == "m2"


def test_a_parent_that_is_not_expected_to_save_enough_is_not_taken() -> None:
    saves = expected_saving(relate(PARENTS[0].graph, CHILD.graph))
    assert configure("relative", CHILD, PARENTS[:1], minimum=saves - 0.01).parent == "m1"
    assert configure("relative", CHILD, PARENTS[:1], minimum=saves).parent is None


def test_an_inaccurate_model_is_not_a_parent_even_if_similar() -> None:
    peers = [trained(at, chain(8, 16 + at, 4), 0.9 + 0.001 * at) for at in range(9)]
    failed = trained(99, CHILD.graph, 0.1)
    assert configure("modelkeeper", CHILD, [*peers, failed]).parent != "m99"
    assert configure("modelkeeper", CHILD, [*peers, failed._replace(accuracy=0.9)]).parent == "m99"


@pytest.mark.parametrize("kind", WITH_PARENTS)
def test_a_model_that_is_not_usable_is_no_parent(kind: str) -> None:
    barred = [model._replace(usable=False) for model in PARENTS[:-1]]
    assert configure(kind, CHILD, [*barred, PARENTS[-1]]).parent is None
    second = PARENTS[0]._replace(model_id="m6")
    assert configure(kind, CHILD, [*barred, second]).parent == "m6"


def test_accuracies_are_compared_with_those_of_models_that_are_not_usable() -> None:
    peers = [
        trained(at, chain(8, 16 + at, 4), 0.9 + 0.001 * at)._replace(usable=False)
        for at in range(9)
    ]
    failed = trained(99, CHILD.graph, 0.1)
    assert configure("modelkeeper", CHILD, [failed]).parent == "m99"
    assert configure("modelkeeper", CHILD, [*peers, failed]).parent is None


widths = st.lists(st.sampled_from([4, 8, 16]), min_size=1, max_size=4)
graphs = widths.map(lambda inner: chain(8, *inner, 4))


@pytest.mark.slow
@given(
    st.lists(st.tuples(graphs, st.sampled_from([0.5, 0.89, 0.9, 0.91])), max_size=12),
    st.lists(graphs, min_size=1, max_size=4),
    st.data(),
)
def test_the_search_chooses_as_if_it_scored_all(
    there: list[tuple[Graph, float]], children: list[Graph], data: st.DataObject
) -> None:
    """Also as models come and go while one policy lives."""
    matcher = data.draw(st.sampled_from(["coverage", "modelkeeper-asbuilt"]))
    rule: Rule = data.draw(st.sampled_from(get_args(Rule)))
    config = policies("configure")["modelkeeper"].model_validate(
        {"kind": "modelkeeper", "matcher": matcher, "rule": rule}
    )
    policy, score = config.build(), MATCHERS[matcher]
    everyone = [trained(at, graph, accuracy) for at, (graph, accuracy) in enumerate(there)]
    for graph in children:
        now = [one for one in everyone if data.draw(st.booleans())]
        ctx = ScriptedContext(profile())
        ctx.zoo = Models(ChildModel("new", "digits", graph), now)
        found = policy.configure(ctx, Start(job(), 1, NO_PROFILE, 0)).parent
        arrays = score.arrays(graph)
        own = score.own(arrays)
        all_scored = [
            Candidate(
                score.score(score.arrays(one.graph), arrays),
                one.accuracy,
                one.task,
                retained_share(one.graph, graph),
            )
            for one in now
        ]
        at = choose(rule, all_scored, "digits", 0.01 * own, own)
        assert found == (None if at is None else now[at].model_id)


@pytest.mark.slow
@given(st.lists(st.tuples(graphs, st.sampled_from([0.5, 0.89, 0.9, 0.91])), max_size=12), graphs)
def test_the_most_saving_relative_is_found_as_if_all_were_scored(
    there: list[tuple[Graph, float]], graph: Graph
) -> None:
    everyone = [trained(at, each, accuracy) for at, (each, accuracy) in enumerate(there)]
    child = ChildModel("new", "digits", graph)
    found = configure("relative", child, everyone).parent
    able = candidates(child.task, everyone)
    best = max((model.accuracy for model in able), default=0.0)
    most = {
        model.model_id: expected_saving(relate(model.graph, graph))
        + saving_by_accuracy(model.accuracy, best)
        for model in able
    }
    highest = max(most.values(), default=0.0)
    if found is None:
        assert highest <= 1e-9
    else:
        assert most[found] == pytest.approx(highest)


def test_random_parents_are_all_drawn() -> None:
    policy = policies("configure")["random-parent"]().build()  # type: ignore[call-arg]
    ctx = ScriptedContext(profile())
    ctx.zoo = Models(CHILD, PARENTS)
    drawn = [policy.configure(ctx, Start(job(), 1, NO_PROFILE, 0)).parent for _ in range(100)]
    found, counts = np.unique(drawn, return_counts=True)
    assert list(found) == ["m1", "m2", "m3", "m4"]
    assert counts.min() > 10
