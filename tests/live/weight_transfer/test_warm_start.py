"""Coverage predicts the share of a model that a transfer fills, for 40 x 40 models."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import pandas as pd  # noqa: E402

from tests.support.torch_models import families, trained_like  # noqa: E402
from tests.support.transfers import IMAGES, WORDS, check_report  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402
from wattkeeper.policies.matching.relation import coverage  # noqa: E402


@pytest.mark.slow
def test_coverage_ranks_parents_by_what_the_transfer_fills() -> None:
    models = [trace(trained_like(model), inputs, name) for name, model, inputs in families()]
    assert len(models) >= 40
    scores, shares, preserved = [], [], 0
    for parent, child in itertools.product(models, models):
        scores.append(coverage(parent.graph, child.graph))
        before = copy.deepcopy(child.module.state_dict())
        report = grow(parent, child)
        shares.append(report.coverage)
        if parent is child:
            assert scores[-1] == shares[-1] == 1
        else:
            inputs = [
                WORDS if "embedding.weight" in t.program.shapes else IMAGES for t in (parent, child)
            ]
            if inputs[0] is inputs[1]:
                check_report(report, parent.module, child.module, inputs[0])
                preserved += report.preserved_in_eval
        child.module.load_state_dict(before)
    ranks = [pd.Series(values).rank() for values in (scores, shares)]
    assert ranks[0].corr(ranks[1]) >= 0.95
    assert shares == pytest.approx(scores, abs=1e-12)
    assert len(set(scores)) > 100
    assert preserved > 10
