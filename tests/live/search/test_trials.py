"""Trials of parents in a search, through the command: what they cost, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

from tests.live.search.searches import run
from tests.support.messages import assert_states
from wattkeeper.policies.learning.halving import halve

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

MODELS: Final = 5
SECONDS: Final = ("time_s", "graph_s", "query_s", "transfer_s", "seal")
SHORT: Final = ("--seeds", "1..1", "--set", "workload.training.most_epochs=4")


def scenario(tmp_path: Path, gpu: str = "CPU", trial: str = "trials: 3, trial_epochs: 1") -> Path:
    path = tmp_path / "search.yaml"
    path.write_text(
        "name: search\n"
        "question: Which parent?\n"
        f"cluster: {{gpu: {gpu}, gpus: 1, idle_power_w: 0}}\n"
        f"workload: {{kind: search, models: {MODELS}}}\n"
        "zoo: {}\n"
        "variants:\n"
        "  scratch: {policies: {configure: none}}\n"
        f"  tried: {{policies: {{configure: {{kind: relative, {trial}}}}}}}\n"
        "baseline: scratch\n"
        "seeds: 1\n"
    )
    return path


def records(out: Path) -> list[dict[str, Any]]:
    """The finished trainings of the variant that tries parents."""
    [path] = out.with_name(f"{out.name}.trainings").glob("tried-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    trial = record["trial"]
    kept = {name: value for name, value in record.items() if name not in SECONDS}
    if trial is not None:
        kept["trial"] = {name: value for name, value in trial.items() if name != "time_s"}
    return kept


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search on a device that measures energy; each trial trains for epochs."""
    folder = tmp_path_factory.mktemp("trials")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WATTKEEPER_DEVICE", "synthetic:SYN-250W")
        patch.setenv("WATTKEEPER_STATE", str(folder))
        done = run(scenario(folder, "SYN-250W"), folder / "out", *SHORT)
    assert done.exit_code == 0, done.output
    return folder / "out"


def test_the_charge_is_what_was_trained(tried: Path) -> None:
    rows = records(tried)
    assert [row["trial"] is None for row in rows[:2]] == [True, True], "one candidate at most"
    charged = [row for row in rows if row["trial"] is not None]
    assert {len(row["trial"]["parents"]) for row in charged} <= {2, 3}
    assert any(len(row["trial"]["parents"]) == 3 for row in charged)
    for row in charged:
        trial = row["trial"]
        scores, trained = trial["accuracies"], trial["trained"]
        best = scores.index(max(scores))
        assert row["parent"] == trial["parents"][best]
        assert trained == [1] * len(scores)
        assert trial["epochs"] == sum(trained) - trained[best]
        evaluated = (len(scores) - 1) * 359 / 1078 / 3
        assert trial["work"] == pytest.approx((trial["epochs"] + evaluated) * row["parameters"])
        assert row["work"] == row["epochs"] * row["parameters"]
        assert trial["time_s"] > 0
        assert trial["energy_j"] / trial["time_s"] == pytest.approx(250, rel=0.25)


def test_tables_show_the_charge(tried: Path) -> None:
    rows = records(tried)
    jobs = pd.read_parquet(tried / "jobs.parquet").query("variant == 'tried'")
    trials = [row["trial"] or {"epochs": 0, "time_s": 0.0, "energy_j": 0.0} for row in rows]
    assert jobs["trial_epochs"].tolist() == [trial["epochs"] for trial in trials]
    for column, key in (("epochs", "epochs"), ("time_s", "time_s"), ("energy_j", "energy_j")):
        total = [row[key] + trial[key] for row, trial in zip(rows, trials, strict=True)]
        assert jobs[column].tolist() == pytest.approx(total)
        own = jobs[f"trial_{column}"].tolist()
        assert own == pytest.approx([trial[key] for trial in trials])
    assert jobs["parent_model"].tolist()[1:] == [row["parent"] for row in rows[1:]]
    held_s = jobs["finish_time_s"] - jobs["start_time_s"]
    assert (jobs["time_s"] + jobs["overhead_s"]).tolist() == pytest.approx(held_s.tolist())
    metrics = json.loads((tried / "summary.json").read_text())["variants"]["tried"]["metrics"]
    work = sum(row["work"] + (row["trial"] or {"work": 0})["work"] for row in rows)
    assert metrics["work"]["mean"] == pytest.approx(work)
    assert metrics["energy_j"]["mean"] == pytest.approx(jobs["energy_j"].sum())
    decisions = pd.read_parquet(tried / "decisions.parquet").query("variant == 'tried'")
    chose = decisions[decisions["point"] == "configure"].set_index("job_id")["chose"]
    last = rows[-1]
    asked, left = chose.loc[last["model"]]
    first, *rivals = last["trial"]["parents"]
    assert_states(asked, f"parent={first} ", f"rivals={','.join(rivals)} trial_epochs=1")
    assert left == f"tried: parent={last['parent']}"
    scratch = pd.read_parquet(tried / "jobs.parquet").query("variant == 'scratch'")
    assert not scratch["trial_epochs"].any()


def test_the_best_one_is_trained_as_without_a_trial(tried: Path, tmp_path: Path) -> None:
    """As long as the parents are the same, so are the networks."""
    done = run(scenario(tmp_path, trial="trials: 1"), tmp_path / "alone", *SHORT)
    assert done.exit_code == 0, done.output
    same = 0
    for one, other in zip(records(tried), records(tmp_path / "alone"), strict=True):
        if one["parent"] != other["parent"]:
            break
        for key in ("epochs", "best_epoch", "validation_accuracy", "accuracy", "coverage"):
            assert one[key] == other[key], key
        same += one["trial"] is not None
    assert same


def test_a_search_stopped_in_a_trial_goes_on_with_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scenario(tmp_path)
    done = run(path, tmp_path / "whole", *SHORT)
    assert done.exit_code == 0, done.output
    calls = []

    def stop(*arguments: Any) -> int:
        calls.append(arguments)
        left = halve(*arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return left

    with monkeypatch.context() as patch:
        patch.setattr("wattkeeper.live.search.trial.halve", stop)
        done = run(path, tmp_path / "cut", *SHORT)
    assert done.exit_code == 130, done.output
    whole = records(tmp_path / "whole")
    second = [at for at, row in enumerate(whole) if row["trial"] is not None][1]
    assert len(records(tmp_path / "cut")) == second
    done = run(path, tmp_path / "cut", *SHORT)
    assert done.exit_code == 0, done.output
    cut = records(tmp_path / "cut")
    assert list(map(without_times, cut)) == list(map(without_times, whole))
    before = (tmp_path / "cut" / "jobs.parquet").read_bytes()
    assert run(path, tmp_path / "cut", *SHORT).exit_code == 0
    assert (tmp_path / "cut" / "jobs.parquet").read_bytes() == before, "nothing is tried again"
    for other in ("trials: 2, trial_epochs: 1", "trials: 3"):
        done = run(scenario(tmp_path, trial=other), tmp_path / "cut", *SHORT)
        assert done.exit_code == 2, done.output
        assert_states(done.output, "tried-1.jsonl", "trial of parents", "--out")


def test_trials_are_refused_where_nothing_can_try(tmp_path: Path) -> None:
    asked = "variants.modelkeeper.policies.configure={kind: relative, trials: 3}"
    done = run(Path("zoo-bandits"), tmp_path / "out", "--set", asked)
    assert done.exit_code == 2, done.output
    facts = "variants.modelkeeper", "relative has parents tried", "leave trials out"
    assert_states(done.output, *facts)
