"""A parent and a batch size for one job: scenarios with a list of policies, through the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.scenarios.spec.json_schema import json_schema

FEW = ("--set", "workload.recurrences=12", "--seeds", "1")


def scenario(folder: Path, configure: Any, **changes: Any) -> Path:
    """Recurring jobs with models, under a policy or several, and under the default."""
    content = {
        "name": "chains",
        "cluster": {"gpu": "SYN-250W", "gpus": 3, "gpus_per_node": 1, "idle_power_w": 40},
        "workload": {
            "kind": "recurring",
            "profiles": {"synthetic": {}},
            "recurrences": 8,
            "models": "mutations",
        },
        "zoo": {"accuracy": 0.9},
        "variants": {"default": {}, "chosen": {"policies": {"configure": configure}}},
        "baseline": "default",
    }
    path = folder / "chains.yaml"
    path.write_text(yaml.safe_dump(content | changes), encoding="utf-8")
    return path


def read(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def decisions_of(folder: Path) -> pd.DataFrame:
    """What was decided, with costs to 9 digits: sums of energies are rounded otherwise live."""
    table = read(folder, "decisions")[["job_id", "point", "policy", "chose"]]
    table["chose"] = table["chose"].str.replace(
        r"cost_bound=[\d.]+", lambda found: f"cost_bound={float(found[0][11:]):.9g}", regex=True
    )
    return table


def test_jobs_have_a_parent_and_a_batch_size_of_their_own(inside: Command, tmp_path: Path) -> None:
    inside("run", "zoo-bandits", *FEW, "--out", "out")
    jobs = read(tmp_path / "out", "jobs")
    by_variant = dict(list(jobs.groupby("variant")))
    sizes = {
        name: rows.groupby("workload")["batch_size"].nunique().min()
        for name, rows in by_variant.items()
    }
    parents = {name: rows["parent_model"].notna().sum() for name, rows in by_variant.items()}
    assert {name for name, found in sizes.items() if found > 1} == {
        "zeus",
        "frugal",
        "modelkeeper-zeus",
        "modelkeeper-frugal",
    }
    assert {name for name, found in parents.items() if found} == {
        "modelkeeper",
        "modelkeeper-zeus",
        "modelkeeper-frugal",
        "modelkeeper-oracle",
    }
    both = by_variant["modelkeeper-frugal"]
    assert both["parent_model"].notna().sum() == len(both) - both["workload"].nunique()
    decisions = read(tmp_path / "out", "decisions")
    chose = decisions[decisions["policy"] == "modelkeeper+zeus"]["chose"]
    assert chose.str.contains("parent=").all()
    assert chose.str.contains("cost_bound=").all()


def test_both_save_more_than_either(inside: Command, tmp_path: Path) -> None:
    """In the model, a parent and a batch size save shares of each other's costs."""
    inside("run", "zoo-bandits", *FEW, "--set", "workload.recurrences=30", "--out", "out")
    variants = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["variants"]
    cost = {name: about["metrics"]["cost"]["mean"] for name, about in variants.items()}
    costs = {name: each / cost["default"] for name, each in cost.items()}
    for learns in ("zeus", "frugal", "oracle"):
        both = costs[f"modelkeeper-{learns}"]
        assert both < min(costs["modelkeeper"], costs[learns])
        assert both == pytest.approx(costs["modelkeeper"] * costs[learns], rel=0.1)


def test_a_list_of_one_is_that_policy(inside: Command, tmp_path: Path) -> None:
    for name, configure in (("list", ["zeus"]), ("name", "zeus")):
        inside("run", scenario(tmp_path, configure), "--out", name)
    lists, names = (read(tmp_path / name, "decisions") for name in ("list", "name"))
    pd.testing.assert_frame_equal(lists, names)


def test_results_say_what_was_chosen(inside: Command, tmp_path: Path) -> None:
    path = scenario(tmp_path, ["modelkeeper", {"kind": "zeus", "beta": 3.0}])
    inside("run", path, "--out", "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    parent, size = manifest["scenario"]["variants"]["chosen"]["policies"]["configure"]
    assert (parent["kind"], size["kind"], size["beta"]) == ("modelkeeper", "zeus", 3.0)
    inside("report", "out")


@pytest.mark.slow
def test_a_live_rehearsal_decides_as_the_simulator(inside: Command, tmp_path: Path) -> None:
    configure = ["modelkeeper", "zeus"]
    chosen = {"chosen": {"policies": {"configure": configure}}}
    path = scenario(tmp_path, configure, variants=chosen, baseline="chosen", live={"speed": 1e6})
    inside("run", path, "--out", "sim")
    inside("run", path, "--live", "--out", "live")
    sim, live = (decisions_of(tmp_path / name) for name in ("sim", "live"))
    pd.testing.assert_frame_equal(sim, live)


@pytest.mark.parametrize(
    ("configure", "said"),
    [
        (["zeus", "modelkeeper"], "found zeus before modelkeeper|a list holds"),
        (["modelkeeper", "lineage"], "2 that choose parents, modelkeeper and lineage"),
        (["zeus", "frugal"], "2 that choose batch sizes, zeus and frugal"),
        ([], "found an empty list"),
        (["modelkeeper", "zeuss"], "'zeuss'|'zeus'"),
        (["modelkeeper", {"kind": "zeus", "beta": -1}], "beta: found -1"),
        (["modelkeeper", {"kind": "zeus", "bta": 1}], "'bta'|'beta'"),
        (["modelkeeper", 3], "found 3"),
        (["modelkeeper", ["zeus"]], "found a list"),
        (["modelkeeper", {"kind": "fixed", "batch_size": 33}], "batch size 33"),
    ],
)
def test_lists_that_are_refused(inside: Command, tmp_path: Path, configure: Any, said: str) -> None:
    done = inside("validate", scenario(tmp_path, configure), code=2)
    assert "chains.yaml:" in done.stderr
    assert_states(done.stderr, *said.split("|"))
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"zoo": None}, "models: there is no zoo"),
        (
            {
                "variants": {
                    "chosen": {
                        "policies": {"configure": ["modelkeeper", "frugal"], "tune": "zeus-jit"}
                    }
                },
                "baseline": "chosen",
            },
            "modelkeeper+frugal is the tune policy, too",
        ),
        (
            {
                "variants": {
                    "chosen": {
                        "policies": {"configure": ["modelkeeper", "oracle"], "tune": "zeus-jit"}
                    }
                },
                "baseline": "chosen",
            },
            "modelkeeper+oracle sets the power limit itself",
        ),
    ],
)
def test_scenarios_that_are_refused(
    inside: Command, tmp_path: Path, changes: Any, said: str
) -> None:
    done = inside("validate", scenario(tmp_path, "zeus", **changes), code=2)
    assert_states(done.stderr, said)


def test_a_search_trains_by_one_rule(inside: Command) -> None:
    chain = "variants.zoo.policies.configure=[modelkeeper, zeus]"
    done = inside("validate", "zoo-digits", "--set", chain, code=2)
    assert_states(done.stderr, "zeus chooses a batch size")


def test_the_schema_takes_lists() -> None:
    schema = json_schema()
    configure = schema["$defs"]["Policies"]["properties"]["configure"]
    tune = schema["$defs"]["Policies"]["properties"]["tune"]
    lists = [part for part in configure["anyOf"] if part.get("type") == "array"]
    assert len(lists) == 1
    assert "zeus" in lists[0]["items"]["anyOf"][0]["enum"]
    assert "array" not in json.dumps(tune)


def test_networks_are_mutations_and_the_same_in_all_runs(inside: Command, tmp_path: Path) -> None:
    for seeds in ("1", "2..2"):
        inside("run", scenario(tmp_path, "lineage"), "--seeds", seeds, "--out", seeds)
    one, other = (read(tmp_path / seeds, "models") for seeds in ("1", "2..2"))
    chosen = one[one["variant"] == "chosen"]
    assert len(chosen) == 3 * 8
    assert chosen["parent_model"].notna().sum() == 3 * 7, "its origin is always stored"
    key = ["variant", "job_id", "coverage"]
    pd.testing.assert_frame_equal(
        one[key].sort_values(key, ignore_index=True), other[key].sort_values(key, ignore_index=True)
    )
