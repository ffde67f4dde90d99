"""Live runs on a real Ray with two nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_runs import REHEARSED, decisions, rows, run, scenario
from wattkeeper.live.controller.launchers.ray import match_nodes
from wattkeeper.policies.errors import EnvironmentLacks

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray cluster of two nodes with a (pretended) GPU each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(
                num_cpus=4, num_gpus=1, include_dashboard=False, object_store_memory=80 << 20
            )
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_a_run_on_two_nodes_gives_the_simulators_journal(address: str, tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED, recurrences=3)
    run(path, "--out", "sim", cwd=tmp_path)
    run(path, "--out", "live", "--live", "--ray", address, cwd=tmp_path)
    expected, found = decisions(tmp_path / "sim"), decisions(tmp_path / "live")
    assert [row[:-1] for row in found] == [row[:-1] for row in expected]
    assert {tuple(row["node_ids"]) for row in rows(tmp_path / "live", "jobs")} == {(0,), (1,)}
    about = json.loads((tmp_path / "live" / "manifest.json").read_text())["live"]
    assert about["runner"] == "ray"
    assert set(about["causes"]) <= {"reached", "bound"}


@pytest.mark.slow
def test_a_cluster_that_is_too_small_is_refused(address: str, tmp_path: Path) -> None:
    cluster = REHEARSED["cluster"] | {"gpus": 3}
    path = scenario(tmp_path, REHEARSED | {"cluster": cluster})
    said = run(path, "--live", "--ray", address, cwd=tmp_path, code=3).stderr
    assert "the scenario has 3 nodes with 1, 1, 1 GPUs, Ray's have 1, 1" in said


@pytest.mark.slow
def test_an_unreachable_ray_is_named(tmp_path: Path) -> None:
    path = scenario(tmp_path, REHEARSED)
    said = run(path, "--live", "--ray", "127.0.0.1:9", cwd=tmp_path, code=3).stderr
    assert "Ray is not reachable at 127.0.0.1:9" in said
    assert "ray start --head" in said


def test_nodes_are_matched_by_their_size() -> None:
    nodes = [
        {"NodeID": name, "Alive": name != "gone", "Resources": {"GPU": gpus} if gpus else {}}
        for name, gpus in (("large", 8), ("none", 0), ("gone", 4), ("small", 2), ("middle", 4))
    ]
    assert match_nodes([4, 2, 1], nodes) == ["large", "middle", "small"]
    with pytest.raises(EnvironmentLacks, match="Ray's have 8, 4, 2, 0"):
        match_nodes([4, 4, 4], nodes)
