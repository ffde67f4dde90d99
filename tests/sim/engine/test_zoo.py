"""The zoo in the simulator: what is saved, what is kept, and that nothing is lost or invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.policies.configure.test_zoo_configure import chain
from tests.support.messages import assert_states
from tests.support.worlds import attempts, chosen, decided, steady, trace
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import policies
from wattkeeper.policies.zoo_views import ChildModel
from wattkeeper.scenarios.contract.scripted import job as plain_job
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.engine.run_config import RunRules
from wattkeeper.sim.engine.warm_start import WarmStartModel
from wattkeeper.sim.engine.world import RunParts, World
from wattkeeper.sim.engine.zoo import ModelOfJob, SimulatedZoo, ZooSpec
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.replay.backend import Profiles, Replay
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

GPU = "V100"
NARROW, WIDE = chain(8, 16, 4), chain(8, 32, 4)
MODELS = {
    "narrow": ModelOfJob(ChildModel("narrow", "digits", NARROW), 0.9),
    "wide": ModelOfJob(ChildModel("wide", "digits", WIDE, "narrow"), 0.92),
    "other": ModelOfJob(ChildModel("other", "letters", WIDE), 0.5),
}
HALF = WarmStartModel.model_validate(
    {
        "saved": {"scale": 0.5, "exponent": 1},
        "accuracy": {"shift": 0.01, "noise": 0},
        "fit": {},
        "error": {},
        "source": "a test",
    }
)
"""A parent that fills all saves half."""


def job(name: str, model: str | None, submit_s: float = 0.0, **other: Any) -> Job:
    return plain_job(name, submit_s, **{"workload": None, **other}).replace(model=model)


def run(
    *jobs: Job,
    configure: Any = "modelkeeper",
    retain: str = "keep-all",
    select: str = "fifo",
    capacity_bytes: int | None = None,
    gpus: int = 1,
    profiles: Profiles | None = None,
    warm: WarmStartModel = HALF,
) -> tuple[World, SimulatedZoo]:
    """A world at its end, and its zoo."""
    config = {"kind": configure} if isinstance(configure, str) else configure
    configuring = policies("configure")[config["kind"]].model_validate(config)
    env, streams, objective = SimulationEnvironment(), NamedStreams(1), Objective(0.5)
    spec = ClusterSpec((NodeGroup(GPU, 1, gpus),), {GPU: GpuPower(50.0, 200.0)})
    backend = Replay(env, profiles or {}, streams, objective, UnprofiledPower(spec.busy_w))
    retaining = policies("retain")[retain].model_validate({"kind": retain})
    zoo = SimulatedZoo(ZooSpec(capacity_bytes, MODELS, warm), retaining, streams)
    taken = chosen(configure=configuring, select=select)
    rules = RunRules(objective)
    world = World(RunParts(env, Cluster(spec), trace(jobs), backend, taken, rules, streams, zoo))
    backend.listener = world
    world.run()
    return world, zoo


def test_the_second_model_starts_from_the_first() -> None:
    world, zoo = run(job("a", "narrow"), job("b", "narrow"), job("c", "other"), job("d", None))
    rows = {row.job_id: row for row in attempts(world)}
    assert {name: rows[name].parent_model for name in rows} == {
        "a": None,
        "b": "a",
        "c": None,
        "d": None,
    }
    assert [rows[name].time_s for name in "abcd"] == [10, 5, 10, 10]
    assert rows["b"].energy_j == rows["a"].energy_j / 2
    assert [done.accuracy for done in zoo.done] == [0.9, pytest.approx(0.91), 0.5]
    assert [done.saved_s for done in zoo.done] == [0, 5, 0]
    assert [(name, chose) for _, name, chose in decided(world, "configure")] == [
        ("a", "parent=None query_s=0"),
        ("b", "parent=a query_s=0"),
        ("c", "parent=None query_s=0"),
    ]
    assert [chose for _, _, chose in decided(world, "retain")] == ["admit"] * 3


def test_a_job_before_the_first_trained_model_has_no_parent() -> None:
    _, zoo = run(job("a", "narrow"), job("b", "narrow", 9.0), job("c", "narrow", 10.0), gpus=3)
    assert [(done.number, done.parent) for done in zoo.done] == [(0, None), (2, "a"), (1, None)]


def test_a_query_holds_the_gpus_without_training() -> None:
    asks = {"kind": "modelkeeper", "query_s": 8.0}
    world, _ = run(job("a", "narrow"), job("b", "narrow"), configure=asks)
    first, second = attempts(world)
    assert (first.overhead_s, second.overhead_s) == (0, 8)
    assert (second.finish_time_s, second.time_s) == (23, 5)
    assert second.energy_j == 5 * 200 + 8 * 50


def test_a_profiled_job_saves_whole_epochs() -> None:
    known = steady(5.0, 2.0)
    first, second = (job(name, "narrow", workload="cnn") for name in "ab")
    world, zoo = run(first, second, profiles={("cnn", 1, GPU): known})
    assert [row.epochs for row in attempts(world)] == [5, 3]
    assert [done.saved_s for done in zoo.done] == [0, 4]


def test_a_preempted_job_keeps_its_parent_and_finishes_its_query() -> None:
    """Under srtf, a short job takes the GPU in the midst of the query, then of the training."""
    asks = {"kind": "modelkeeper", "query_s": 4.0}
    jobs = (
        job("a", "narrow"),
        job("b", "narrow", 10.0, duration_s=20.0),
        job("short", None, 11.0, duration_s=1.0),
        job("short-too", None, 17.0, duration_s=1.0),
    )
    world, zoo = run(*jobs, configure=asks, select="srtf")
    row = next(row for row in attempts(world) if row.job_id == "b")
    assert (row.parent_model, row.preemptions, row.overhead_s) == ("a", 2, 4.0)
    assert (row.time_s, row.finish_time_s) == (10, 10 + 2 + 4 + 10)
    assert len(decided(world, "configure")) == 2
    assert zoo.done[-1].parent == "a"


arrivals = st.lists(
    st.tuples(
        st.sampled_from([*MODELS, None]), st.floats(0, 30), st.floats(1, 20), st.integers(1, 2)
    ),
    min_size=1,
    max_size=25,
)


@given(
    arrivals,
    st.sampled_from(sorted(policies("retain"))),
    st.sampled_from(["none", "lineage", "random-parent", "modelkeeper"]),
    st.sampled_from(["fifo", "srtf", "las"]),
    st.integers(500, 8000) | st.none(),
)
def test_what_always_holds(
    asked: list[tuple[str | None, float, float, int]],
    retain: str,
    configure: str,
    select: str,
    capacity_bytes: int | None,
) -> None:
    jobs = tuple(
        job(f"j{at}", model, submit_s, duration_s=duration_s, gpus=gpus)
        for at, (model, submit_s, duration_s, gpus) in enumerate(sorted(asked, key=lambda x: x[1]))
    )
    world, zoo = run(
        *jobs,
        configure=configure,
        retain=retain,
        select=select,
        gpus=3,
        capacity_bytes=capacity_bytes,
    )
    done_s = {f"j{one.number}": one.time_s for one in zoo.done}
    rows = {row.job_id: row for row in attempts(world)}
    assert set(done_s) == {one.job_id for one in jobs if one.model is not None}
    for done in zoo.done:
        assert capacity_bytes is None or done.zoo_bytes <= capacity_bytes
        name = f"j{done.number}"
        row, recorded_s = rows[name], jobs[done.number].duration_s
        assert row.parent_model == done.parent
        if done.parent is not None:
            assert done_s[done.parent] <= row.start_time_s
            assert MODELS[str(jobs[done.number].model)].child.task == (
                MODELS[str(jobs[int(done.parent[1:])].model)].child.task
            )
        assert row.time_s + done.saved_s == pytest.approx(recorded_s)
        assert row.time_s == pytest.approx(recorded_s * HALF.share_left(done.coverage))
        assert row.energy_j == pytest.approx(row.time_s * 200 * row.gpus + row.overhead_s * 50)
    if configure == "none":
        assert all(done.parent is None for done in zoo.done)


def save_arrivals(folder: Path, count: int = 30) -> None:
    """A list of arrivals and their graphs."""
    graphs = [chain(8, *[16] * (1 + 2 * at), 4) for at in range(5)]
    (folder / "graphs").mkdir()
    for at, graph in enumerate(graphs):
        path = folder / "graphs" / f"Net_depth_{at}.json"
        path.write_text(graph.to_json(), encoding="utf-8")
    rows = [f'"Net(depth={at % 5})",{100 + 700 * at}' for at in range(count)]
    (folder / "arrivals.csv").write_text("\n".join(["name,arrival", *rows, ""]), encoding="utf-8")


IMPORT = ("traces", "import", "modelkeeper", "arrivals.csv", "graphs")


@pytest.mark.parametrize("name", ["zoo-imgclsmob", "zoo-capacity"])
def test_shipped_scenarios(name: str, inside: Command, command: Command, tmp_path: Path) -> None:
    save_arrivals(tmp_path)
    inside(*IMPORT, "--name", "zoo-imgclsmob")
    digests = []
    for workers, run in (("1", inside), ("2", command)):
        if name == "zoo-capacity" and run is command:
            continue  # the other scenario shows that workers change nothing
        asked = ("run", name, "--seeds", "2", "--workers", workers, "--out", workers)
        shown = run(*asked, "--set", "zoo.accuracy=0.5").stdout
        assert "GPU time saved" in shown
        assert "less what a parent saves" in shown
        manifest = json.loads((tmp_path / workers / "manifest.json").read_text())
        digests.append(manifest["results_digest"])
        assert any("warm_start.json" in what for what in manifest["modelled"])
    assert len(set(digests)) == 1
    summary = json.loads((tmp_path / "1" / "summary.json").read_text())["variants"]
    metrics = {
        variant: {key: value["mean"] for key, value in found["metrics"].items()}
        for variant, found in summary.items()
    }
    assert all(0.4 < found["mean_accuracy"] < 0.6 for found in metrics.values()), "all zoos'"
    if name == "zoo-capacity":
        assert all(0 <= found["zoo_bytes"] <= 1e9 for found in metrics.values())
    else:
        assert metrics["none"]["with_parent"] == metrics["none"]["gpu_s_saved"] == 0
        assert metrics["coverage"]["gpu_s_saved"] > metrics["random-parent"]["gpu_s_saved"] > 0
        assert metrics["coverage"]["energy_j"] < metrics["none"]["energy_j"]


def test_a_name_without_graph_is_refused_or_left_out(inside: Command, tmp_path: Path) -> None:
    save_arrivals(tmp_path)
    with (tmp_path / "arrivals.csv").open("a") as file:
        file.write("unknown,99999\n")
    refused = inside(*IMPORT, code=2)
    assert_states(refused.stderr, "1 of 31 names", "no graph", "unknown", "--skip-bad")
    inside(*IMPORT, "--skip-bad", "--name", "zoo-imgclsmob")
    ran = json.loads(inside("run", "zoo-imgclsmob", "--seeds", "1", "--json").stdout)
    assert ran["variants"]["none"]["metrics"]["jobs"]["mean"] == 30


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("zoo=null",), "configure: random-parent chooses parents, but there is no zoo"),
        (("zoo.accuracy=null",), "zoo.accuracy"),
        (("occupancy=recorded",), "zoo: it needs a workload of kind trace"),
        (("workload.trace=plain",), "which models"),
        (("variants.none.policies.configure=lineage",), "lineage"),
    ],
)
def test_what_is_refused(
    settings: tuple[str, ...], says: str, inside: Command, tmp_path: Path
) -> None:
    save_arrivals(tmp_path)
    inside(*IMPORT, "--name", "zoo-imgclsmob")
    (tmp_path / "plain.csv").write_text("job_id,submit_time_s,duration_s,gpus\na,0,1,1\n")
    inside("traces", "import", "csv", "plain.csv", "--name", "plain")
    asked = [part for setting in settings for part in ("--set", setting)]
    assert says in inside("run", "zoo-imgclsmob", *asked, code=2).stderr


@pytest.mark.slow
def test_published_arrivals(command: Command, shared: Path, tmp_path: Path) -> None:
    data = shared / "data/modelkeeper"
    bring = ("traces", "import", "modelkeeper", data / "graphs")
    many = command(*bring, data / "workloads/imgclsmob-large.csv", code=2).stderr
    assert_states(many, "334 of 389 names", "no graph")
    command(*bring, data / "workloads/torchcv_list.csv", "--skip-bad", "--name", "zoo-imgclsmob")
    command("run", "zoo-imgclsmob", "--seeds", "1", "--out", "out")
    found = json.loads((tmp_path / "out/summary.json").read_text())["variants"]
    saved = {name: one["metrics"]["gpu_s_saved"]["mean"] for name, one in found.items()}
    assert found["none"]["metrics"]["jobs"]["mean"] == 169
    assert saved["coverage"] > max(saved["random-parent"], saved["asbuilt"]) > saved["none"] == 0
