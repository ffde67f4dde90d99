"""Searches whose strategy learns from the accuracies, through the command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.live.search.searches import TINY, run, trainings

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

STRATEGIES = {
    "drawn": "{}",
    "random": "{kind: random}",
    "evolution": "{kind: evolution, population: 3, sample: 2, probability: 0.5}",
    "greedy": "{kind: greedy, space: {stages: 1}}",
    "bayesian": "{kind: bayesian}",
}


def scenario(tmp_path: Path, strategy: str, configure: str = "lineage", models: int = 5) -> Path:
    path = tmp_path / "search.yaml"
    path.write_text(
        "name: search\n"
        "question: Which parent?\n"
        "cluster: {gpu: CPU, gpus: 1, idle_power_w: 0}\n"
        f"workload: {{kind: search, models: {models}, strategy: {strategy}}}\n"
        "zoo: {}\n"
        "variants:\n"
        "  scratch: {policies: {configure: none}}\n"
        f"  parents: {{policies: {{configure: {configure}}}}}\n"
        "baseline: scratch\n"
        "seeds: 1\n"
    )
    return path


@pytest.mark.parametrize("kind", [kind for kind in STRATEGIES if kind != "drawn"])
def test_strategy_proposes_from_what_was_trained(kind: str, tmp_path: Path) -> None:
    configure = "random-parent" if kind == "random" else "lineage"
    path = scenario(tmp_path, STRATEGIES[kind], configure)
    out = tmp_path / "out"
    done = run(path, out, *TINY)
    assert done.exit_code == 0, done.output
    rows = trainings(out, "parents")
    assert len(rows) == 5
    names = set(rows["model"])
    origins = rows["mutated_from"].dropna()
    assert set(origins) <= names
    assert origins.empty == (kind == "random")
    if kind != "random":
        assert rows["parent"].equals(rows["mutated_from"])
    accuracies = rows["validation_accuracy"].tolist()[:2]
    best = rows["model"].iloc[accuracies.index(max(accuracies))]
    if kind == "greedy":
        assert rows["mutated_from"].iloc[2] == best

    # An interrupted search goes on as if it had not been.
    kept = next(out.with_name("out.trainings").glob("parents-*.jsonl"))
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:3]))
    shutil.rmtree(out)
    again = run(path, out, *TINY)
    assert again.exit_code == 0, again.output
    pd.testing.assert_frame_equal(trainings(out, "parents"), rows)


@pytest.mark.parametrize(
    ("strategy", "configure", "models", "said"),
    [
        ("{kind: evolution, population: 9}", "lineage", 5, "population: it cannot be larger"),
        ("{kind: evolution, population: 2, sample: 4}", "lineage", 5, "sample: it cannot be"),
        ("{kind: random}", "lineage", 5, "strategy: random derives none"),
        ("{kind: random}", "[lineage, fixed]", 5, "strategy: random derives none"),
        ("{kind: greedy, space: {stages: 1, widths: [8]}}", "lineage", 40, "has only 8 networks"),
        ("{kind: drawn, space: {}}", "lineage", 5, "space"),
        ("{kind: random, space: {kernels: [2]}}", "none", 5, "kernels"),
    ],
)
def test_strategies_that_cannot_be_are_refused(
    strategy: str, configure: str, models: int, said: str, tmp_path: Path
) -> None:
    path = scenario(tmp_path, strategy, configure, models)
    done = run(path, tmp_path / "out")
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "out").exists()
