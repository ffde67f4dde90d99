"""Live runs whose variants have clusters and workloads of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.live_runs import REHEARSED, decisions, environment, rows, run, scenario
from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.run.live_equipment import equip
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

SCRIPTED: dict[str, Any] = {
    "name": "scripted",
    "cluster": {"gpu": "cpu", "gpus": 1, "idle_power_w": 0},
    "workload": {"kind": "recurring", "recurrences": 1},
    "objective": {"eta": 0},
    "live": {
        "workloads": {
            "w": {
                "command": ["python", "train.py"],
                "batch_sizes": [8],
                "default_batch_size": 8,
                "max_epochs": 1,
            }
        }
    },
    "variants": {"usual": {}, "other": {"cluster": {"gpu": "V100"}}},
    "baseline": "usual",
}


@pytest.mark.slow
def test_rehearsals_on_the_variants_own_gpus(tmp_path: Path) -> None:
    content = REHEARSED | {
        "variants": {"two": {}, "one": {"cluster": {"gpus": 1}, "workload": {"recurrences": 2}}},
        "baseline": "two",
    }
    path = scenario(tmp_path, content, recurrences=3)
    run(path, "--out", "sim", cwd=tmp_path)
    run(path, "--out", "live", "--live", cwd=tmp_path)
    assert [row[:-1] for row in decisions(tmp_path / "live")] == [
        row[:-1] for row in decisions(tmp_path / "sim")
    ]
    held = {"one": set(), "two": set()}  # type: dict[str, set[int]]
    for row in rows(tmp_path / "live", "jobs"):
        held[row["variant"]].update(row["node_ids"])
    assert held == {"one": {0}, "two": {0, 1}}
    names = [row["variant"] for row in rows(tmp_path / "live", "jobs")]
    assert (names.count("two"), names.count("one")) == (6, 4)


def test_scripts_do_not_train_on_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path, WATTKEEPER_DEVICE="none").items():
        monkeypatch.setenv(name, value)
    loaded = load(str(scenario(tmp_path, SCRIPTED)))
    with pytest.raises(InputError) as refused:
        equip(loaded, read_inputs(loaded, live=True).runs, tmp_path / "none")
    assert_states(str(refused.value), "variant 'other'", "V100", "cpu", "same devices")
