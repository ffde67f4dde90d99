"""Live runs with a zoo whose models scripts train: parents are chosen by the run's policy."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_command
from tests.support.live_runs import Row, decisions, environment, manifest, rows, run, scenario
from tests.support.messages import assert_states
from wattkeeper.policies.errors import WattkeeperError
from wattkeeper.scenarios.run import live_run
from wattkeeper.scenarios.run.live_equipment import equip
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load

torch = pytest.importorskip("torch", reason="torch is not installed")

NETWORKS = """
from torch import nn

WIDTHS = {"small": 8, "wide": 16}


def net(name):
    return nn.Sequential(nn.Linear(4, WIDTHS[name]), nn.ReLU(), nn.Linear(WIDTHS[name], 2))
"""

TRAIN = """
import json
import torch
from torch import nn
from networks import WIDTHS, net
from wattkeeper.live import Session

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9) as session:
    assignment = session.assignment
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    labels = (x.sum(1) > 0).long()
    torch.manual_seed(len(assignment.job_id))
    model = net(assignment.model)
    report = session.warm_start(model, "other-zoo", older=map(net, WIDTHS))
    said = {"parent": assignment.parent, "begun": model(x).tolist()}
    said["coverage"] = None if report is None else report.coverage
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session.keep(model=model, optimizer=optimizer)
    for epoch in session.epochs(steps=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
        session.step()
        said["accuracy"] = (model(x).argmax(1) == labels).float().mean().item()
        session.report(said["accuracy"])
    said["ended"] = model(x).tolist()
    with open(f"{assignment.job_id}.json", "w") as file:
        json.dump(said, file)
"""

WORKLOAD = "recommendation"
"""The shortest one of the synthetic profiles, to which a single group of jobs is mapped."""

TRAINED: dict[str, Any] = {
    "name": "trained",
    "cluster": {"gpu": "SYN-250W", "gpus": 1, "idle_power_w": 40},
    "workload": {
        "kind": "trace",
        "trace": "arrivals",
        "profiles": {"synthetic": {}},
        "mapping": {"by": ["gpus"]},
    },
    "zoo": {"accuracy": 0.9, "capacity_gb": 6e-7},
    "live": {
        "workloads": {
            WORKLOAD: {
                "command": ["python", "train.py"],
                "batch_sizes": [2**power for power in range(8, 16)],
                "default_batch_size": 1024,
                "max_epochs": 2,
            }
        }
    },
    "variants": {"zoo": {"policies": {"configure": "modelkeeper", "retain": "lru"}}},
    "baseline": "zoo",
}
"""At 4 bytes a parameter, the wide network has 456 bytes and the small one 232."""


def prepare(folder: Path) -> None:
    """A trace of two jobs that train a model each, and the script that trains them."""
    from wattkeeper.live import graph_of

    (folder / "networks.py").write_text(NETWORKS)
    (folder / "train.py").write_text(TRAIN)
    networks = runpy.run_path(str(folder / "networks.py"))
    (folder / "graphs").mkdir()
    for name in networks["WIDTHS"]:
        graph = graph_of(networks["net"](name), torch.zeros(1, 4), name)
        (folder / "graphs" / f"{name}.json").write_text(graph.to_json())
    lines = ["name,arrival,task,duration"]
    lines += [f"{name},{place / 1000},digits,10" for place, name in enumerate(("small", "wide"))]
    (folder / "arrivals.csv").write_text("\n".join([*lines, ""]))
    bring = ("traces", "import", "modelkeeper", "arrivals.csv", "graphs", "--name", "arrivals")
    run_command(*bring, traces=folder / "library", cwd=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a simulated run and a live one of the same scenario."""
    folder = tmp_path_factory.mktemp("trained")
    prepare(folder)
    path = scenario(folder, TRAINED)
    run(path, "--out", "sim", cwd=folder)
    run(path, "--out", "live", "--live", cwd=folder, WATTKEEPER_DEVICE="synthetic:SYN-250W")
    return folder


def said(folder: Path, job_id: str) -> dict[str, Any]:
    """What the script of a job wrote down."""
    content: dict[str, Any] = json.loads((folder / f"{job_id}.json").read_text())
    return content


@pytest.mark.slow
def test_a_live_run_gives_the_simulators_journal(folder: Path) -> None:
    expected, found = decisions(folder / "sim"), decisions(folder / "live")
    assert found == expected
    chosen = [row[-1].partition(" ")[2] for row in found if row[0] == "configure"]
    assert chosen == [f"parent={parent} query_s=0" for parent in (None, "small")]
    retained = [row[4] for row in found if row[0] == "retain"]
    assert retained == ["admit", "admit evict=small"]


@pytest.mark.slow
def test_scripts_start_from_the_weights_of_the_chosen_parent(folder: Path) -> None:
    assert said(folder, "small")["coverage"] is None
    assert said(folder, "wide")["parent"] == "small"
    assert said(folder, "wide")["coverage"] > 0
    begun = torch.tensor(said(folder, "wide")["begun"])
    assert torch.allclose(begun, torch.tensor(said(folder, "small")["ended"]), atol=1e-5)
    assert not (folder / "other-zoo").exists(), "the run's zoo replaces the script's"


@pytest.mark.slow
def test_reported_accuracies_enter_the_zoo(folder: Path) -> None:
    models = rows(folder / "live", "models")
    assert [row["parent_model"] for row in models] == [None, "small"]
    for row in models:
        assert row["accuracy"] == said(folder, row["job_id"])["accuracy"]
    assert not any("warm_start.json" in text for text in manifest(folder / "live")["modelled"])
    assert manifest(folder / "live")["live"]["causes"] == {"epochs": 2}


@pytest.mark.slow
def test_evicted_weights_leave_the_disk(folder: Path) -> None:
    assert stored(folder) == ["wide"]


def stored(folder: Path) -> list[str]:
    """Names of the models whose weights the live run stores."""
    from wattkeeper.live import Zoo

    return [model.name for model in Zoo(folder / "live.live/zoo/1/zoo").models()]


@pytest.mark.slow
def test_a_replayed_log_gives_the_same_models(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(folder, WATTKEEPER_DEVICE="synthetic:SYN-250W").items():
        monkeypatch.setenv(name, value)
    loaded = load(str(folder / "trained.yaml"), ())
    (again,) = live_run.replay(loaded, read_inputs(loaded, live=True).runs, folder / "live.live")
    found, expected = again.tables["models"].to_pylist(), rows(folder / "live", "models")
    assert list(map(without_savings, found)) == list(map(without_savings, expected))
    assert stored(folder) == ["wide"]


def without_savings(row: Row) -> Row:
    """A row of a trained model without what its parent saved, which is not known: NaN."""
    return {name: value for name, value in row.items() if name != "saved_gpu_s"}


SCRIPT = TRAINED["live"]["workloads"][WORKLOAD]
BY_TASK = {"workload.mapping": None, "workload.profiles": None}


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (
            {"live.workloads": {"images": SCRIPT}},
            ["live.workloads", "'images'", "digits", WORKLOAD],
        ),
        (
            {f"live.workloads.{WORKLOAD}.higher_is_better": False},
            ["higher_is_better", "false", "zoo"],
        ),
        ({"live.runner": "ray"}, ["variant 'zoo'", "Ray", "torchrun"]),
        (
            BY_TASK | {"live.workloads": {"digits": SCRIPT}, "workload.trace": "tasks"},
            ["variant 'zoo'", "job wide", "'words'", "live.workloads"],
        ),
    ],
)
def test_zoos_that_scripts_cannot_share_are_refused(
    settings: dict[str, Any], facts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path
    prepare(folder)
    scenario(folder, TRAINED)
    for name, value in environment(folder, WATTKEEPER_DEVICE="none").items():
        monkeypatch.setenv(name, value)
    rows_by_task = "name,arrival,task,duration\nsmall,0,digits,1\nwide,1,words,1\n"
    (folder / "tasks.csv").write_text(rows_by_task)
    if settings.get("workload.trace") == "tasks":
        bring = ("traces", "import", "modelkeeper", "tasks.csv", "graphs", "--name", "tasks")
        run_command(*bring, traces=folder / "library", cwd=folder)
    loaded = load(str(folder / "trained.yaml"), {"cluster.busy_power_w": 200} | settings)
    with pytest.raises(WattkeeperError) as refused:
        equip(loaded, read_inputs(loaded, live=True).runs, folder / "none")
    assert_states(str(refused.value), *facts)
