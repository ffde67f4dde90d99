"""Sweeps of 200 runs that are killed at random moments, here and on a Ray cluster."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.sweeps import SMALL, content, ended, start, units, until, workers

RUNS = 200
LONG = (
    "quickstart",
    *SMALL,
    "--set",
    "workload.recurrences=60",
    "--seeds",
    "20",
    "--sweep",
    "objective.eta=0,0.25,0.5,0.75,1",
    "--out",
    "out",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes | str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    ended(start(*LONG, cwd=folder))
    return content(folder / "out")


def done(folder: Path) -> int:
    """Finished runs, those of finished points among them."""
    points = (folder / "out.sweep").glob("[0-9a-f]*/")
    return sum(40 if (point / "done").exists() else units(point) for point in points)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_200_runs_survive_kills_of_workers_and_of_the_parent(
    seed: int, tmp_path: Path, undisturbed: dict[str, bytes | str]
) -> None:
    rng = random.Random(seed)
    killed = {"worker": 0, "parent": 0}
    while True:
        process = start(*LONG, "--workers", "2", cwd=tmp_path)
        aim = done(tmp_path) + rng.randint(1, 30)
        while until(lambda aim=aim: done(tmp_path) >= aim, process):  # type: ignore[misc]
            if process.poll() is not None:
                break
            whom = rng.choice(["worker", "worker", "parent", "both"])
            if whom != "parent":
                for pid in rng.sample(there := workers(process.pid), min(1, len(there))):
                    kill(pid)
                    killed["worker"] += 1
            if whom != "worker":
                kill(process.pid)
                killed["parent"] += 1
                break
            aim = done(tmp_path) + rng.randint(1, 30)
        _, err = process.communicate()
        assert "Traceback" not in err
        if process.returncode == 0:
            break
        unlucky = process.returncode == 1 and "its process was killed, 3 times" in err
        assert unlucky or process.returncode == -signal.SIGKILL, err
    print(killed)
    assert min(killed.values()) > 0
    assert content(tmp_path / "out") == undisturbed
    assert not (tmp_path / "out.sweep").exists()


@pytest.mark.slow
def test_storm_of_kills(tmp_path: Path, undisturbed: dict[str, bytes | str]) -> None:
    """`WATTKEEPER_STORM_SWEEP` is the seed and the number of kills.

    A sweep that ends before it is killed counts, and another one begins.
    """
    seed, kills = map(int, os.environ.get("WATTKEEPER_STORM_SWEEP", "17 200").split())
    rng = random.Random(seed)
    outcomes = Counter[str]()
    folder = tmp_path
    struck = longest = 0
    while struck < kills:
        process = start(*LONG, "--workers", "2", cwd=folder)
        goal = done(folder) + rng.choice((0, 0, 1, 1, 2, 5))
        until(lambda goal=goal: done(folder) >= goal, process)  # type: ignore[misc]
        number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        if number != signal.SIGKILL:  # Python itself has to be there to handle it
            until(lambda pid=process.pid: bool(workers(pid)), process)  # type: ignore[misc]
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.choice((0.0, 0.02, 0.3, 1.5)))
        if process.poll() is None:
            whole_group = number == signal.SIGKILL and rng.random() < 0.5
            (os.killpg if whole_group else os.kill)(process.pid, number)
            struck += 1
            outcomes[number.name] += 1
        _, err = process.communicate()
        outcomes[f"code {process.returncode}"] += 1
        assert "Traceback" not in err, err
        assert process.returncode in (0, 130, -signal.SIGKILL), err
        longest = max(longest, done(folder))
        if process.returncode == 0:
            assert content(folder / "out") == undisturbed
            assert not (folder / "out.sweep").exists()
            shutil.rmtree(folder / "out")
    ended(start(*LONG, "--workers", "2", cwd=folder))
    print(f"sweep, seed {seed}: {struck} kills, {dict(outcomes)}, {longest} runs at most")
    assert content(folder / "out") == undisturbed
    assert not (folder / "out.sweep").exists()


@pytest.mark.slow
def test_200_runs_survive_the_loss_of_a_ray_node_and_of_the_parent(
    tmp_path: Path, undisturbed: dict[str, bytes | str]
) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        nodes = [
            cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20)
            for _ in range(3)
        ]
        cluster.wait_for_nodes()
        process = start(*LONG, "--ray", cluster.address, cwd=tmp_path)
        assert until(lambda: done(tmp_path) > 20, process)
        cluster.remove_node(nodes[2], allow_graceful=False)
        assert until(lambda: done(tmp_path) > 80, process)
        kill(process.pid)
        process.communicate()
        process = start(*LONG, "--ray", cluster.address, cwd=tmp_path)
        assert until(lambda: done(tmp_path) > 130, process)
        cluster.remove_node(nodes[1], allow_graceful=False)
        _, err = ended(process)
    finally:
        cluster.shutdown()
    assert "Goes on with" in err
    assert content(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_plain_run_on_ray_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    plain = ("quickstart", *SMALL, "--seeds", "3", "--out")
    ended(start(*plain, "here", cwd=tmp_path))
    cluster = Cluster()
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20)
        cluster.wait_for_nodes()
        ended(start(*plain, "there", "--ray", cluster.address, cwd=tmp_path))
        wrong = "policies.configure={kind: fixed, batch_size: 777}"
        said = [
            ended(start(*plain, "wrong", "--set", wrong, *ray, cwd=tmp_path), 2)[1]
            for ray in ((), ("--ray", cluster.address))
        ]
    finally:
        cluster.shutdown()
    assert content(tmp_path / "here") == content(tmp_path / "there")
    assert said[0] == said[1]


@pytest.mark.slow
def test_a_ray_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    _, err = ended(start("quickstart", "--ray", "127.0.0.1:9", cwd=tmp_path), 3)
    assert "Ray is not reachable at 127.0.0.1:9" in err
