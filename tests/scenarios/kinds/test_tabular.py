"""Searches on recorded tables, through the command."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHARED, Command, run_command
from tests.support.messages import assert_states
from tests.support.traces import read_table
from wattkeeper.policies.profile import epochs_left
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.search.evolution import Evolution
from wattkeeper.sim.search.greedy import Greedy
from wattkeeper.sim.search.random_search import RandomSearch
from wattkeeper.sim.search.strategy import Choices, Space, Strategy
from wattkeeper.traces.library import store
from wattkeeper.traces.models.network_table import NetworkTable

BENCHMARK: Final = SHARED / "data" / "nasbench201" / "final.csv.gz"
EVOLUTION: Final = "{kind: evolution, population: 5, sample: 3, probability: 0.3}"
STRATEGIES: Final[dict[str, tuple[str, Callable[..., Strategy[Choices]]]]] = {
    "evolution": (EVOLUTION, partial(Evolution, population=5, sample=3, probability=0.3)),
    "greedy": ("{kind: greedy}", Greedy),
    "random": ("{kind: random}", RandomSearch),
}
MODELS: Final = 24


@pytest.fixture(scope="module")
def table() -> NetworkTable:
    return read_table(store.find("digits-space"))


@pytest.fixture
def inside(tmp_path: Path) -> Command:
    return partial(run_command, traces=tmp_path / "traces", cwd=tmp_path)


def write(folder: Path, strategy: str = EVOLUTION, **changed: str) -> Path:
    lines = {
        "cluster": "{gpu: CPU, gpus: 1, idle_power_w: 0}",
        "workload": (
            f"{{kind: tabular, table: digits-space, models: {MODELS}, strategy: {strategy}}}"
        ),
        "zoo": "{}",
        "lineage": "{configure: lineage}",
        **changed,
    }
    path = folder / "table.yaml"
    path.write_text(
        "name: table\n"
        "question: What does it find?\n"
        f"cluster: {lines['cluster']}\n"
        f"workload: {lines['workload']}\n"
        f"zoo: {lines['zoo']}\n"
        "variants:\n"
        "  scratch: {policies: {configure: none}}\n"
        f"  lineage: {{policies: {lines['lineage']}}}\n"
        "  zoo: {policies: {configure: relative}}\n"
        "baseline: scratch\n"
        "seeds: 2\n"
    )
    return path


def rows_of(results: Path, table: str = "jobs") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(results / f"{table}.parquet").to_pylist()
    return rows


def network_of(trial: str) -> str:
    return trial.partition("-")[2]


def test_what_was_recorded_is_replayed_and_the_rest_is_marked(
    tmp_path: Path, inside: Command, table: NetworkTable
) -> None:
    inside("run", write(tmp_path), "--out", "out", "--check")
    accuracy = {
        (row["variant"], row["seed"], row["job_id"]): row["accuracy"]
        for row in rows_of(tmp_path / "out", "models")
    }
    kinds = set()
    for row in rows_of(tmp_path / "out"):
        network, parent = network_of(row["job_id"]), row["parent_model"]
        pair = network, None if parent is None else network_of(parent)
        [scratch] = table.recordings[network, None]
        reached = accuracy[row["variant"], row["seed"], row["job_id"]]
        epoch_s = scratch.time_s / scratch.epochs
        assert row["time_s"] == pytest.approx(row["epochs"] * epoch_s, rel=1e-9)
        assert row["workload"] == "digits"
        kinds.add((row["replayed"], parent is None))
        if pair in table.recordings:
            [recorded] = table.recordings[pair]
            assert row["replayed"] == "recorded"
            assert (row["epochs"], reached) == (recorded.epochs, recorded.test_accuracy)
        else:
            assert row["replayed"] == "modelled"
            assert row["epochs"] <= scratch.epochs
            assert reached == scratch.test_accuracy
    assert kinds == {("recorded", True), ("recorded", False), ("modelled", False)}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    rows = rows_of(tmp_path / "out")
    for variant, found in summary["found"].items():
        own = [row for row in rows if row["variant"] == variant]
        assert found["trainings"] == len(own) == 2 * MODELS
        assert found["modelled"] == sum(row["replayed"] == "modelled" for row in own)
        best = [share["mean"] for share in found["best"].values() if share]
        assert best == sorted(best)
    modelled = sum(found["modelled"] for found in summary["found"].values())
    assert any(f"{modelled} of {len(rows)} trainings" in text for text in manifest["modelled"])


@given(from_scratch=st.integers(1, 100_000), epochs=st.integers(1, 100_000))
def test_a_share_of_the_epochs_gives_them_exactly(from_scratch: int, epochs: int) -> None:
    """So that a recording is replayed as it is, also with a parent that harms."""
    assert epochs_left(float(from_scratch), epochs / from_scratch) == epochs


@pytest.mark.parametrize("kind", STRATEGIES)
def test_strategies_propose_what_they_propose_alone(
    kind: str, tmp_path: Path, inside: Command, table: NetworkTable
) -> None:
    strategy, begin = STRATEGIES[kind]
    lineage = "{configure: lineage}" if kind != "random" else "{configure: random-parent}"
    inside("run", write(tmp_path, strategy, lineage=lineage), "--out", "out")
    trained: dict[int, list[str]] = defaultdict(list)
    for row in rows_of(tmp_path / "out"):
        if row["variant"] == "scratch":
            trained[row["seed"]].append(row["job_id"])
    assert len(trained) == 2
    for seed, names in trained.items():
        drawn = int(NamedStreams(seed).policy("search", "networks").integers(1 << 63))
        drawn = drawn % (1 << 32) if kind == "greedy" else drawn
        alone = begin(Space(table.space), drawn, trials=MODELS)
        proposed = []
        while (proposal := alone.propose()) is not None:
            network = table.networks[proposal.network].name
            proposed.append(f"{proposal.label}-{network}")
            alone.report(proposal.trial, table.recordings[network, None][0].accuracy)
        assert names == proposed


@pytest.mark.parametrize("kind", STRATEGIES)
def test_searches_use_all_gpus_and_give_the_same_bytes(
    kind: str, tmp_path: Path, inside: Command
) -> None:
    strategy, _ = STRATEGIES[kind]
    lineage = "{configure: lineage}" if kind != "random" else "{configure: random-parent}"
    cluster = "{gpu: CPU, gpus: 3, idle_power_w: 0}"
    path = write(tmp_path, strategy, cluster=cluster, lineage=lineage)
    inside("run", path, "--out", "out", "--check")
    inside("run", path, "--out", "again", "--workers", "2")
    for name in ("jobs", "models", "decisions"):
        once, twice = (tmp_path / out / f"{name}.parquet" for out in ("out", "again"))
        assert once.read_bytes() == twice.read_bytes()
    rows = [r for r in rows_of(tmp_path / "out") if (r["variant"], r["seed"]) == ("scratch", 1)]
    assert len(rows) == MODELS
    starts = sorted(row["start_time_s"] for row in rows)
    together = max(
        sum(row["start_time_s"] <= at < row["finish_time_s"] for row in rows) for at in starts
    )
    assert together == (1 if kind == "greedy" else 3)  # greedy waits for each trial


def test_a_search_without_a_zoo_trains_from_scratch(tmp_path: Path, inside: Command) -> None:
    path = write(tmp_path)
    text = path.read_text().replace("zoo: {}\n", "", 1)
    kept = [line for line in text.splitlines() if "lineage:" not in line and "  zoo:" not in line]
    path.write_text("\n".join(kept) + "\n")
    inside("run", path, "--out", "out")
    assert {row["replayed"] for row in rows_of(tmp_path / "out")} == {"recorded"}


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"strategy": "{kind: drawn}"}, ("strategy", "drawn", "evolution")),
        ({"strategy": "{kind: random, space: {stages: 1}}"}, ("strategy.space", "leave it out")),
        ({"strategy": "{kind: random}"}, ("lineage", "strategy: random derives none")),
        ({"cluster": "{gpu: A100, gpus: 1, idle_power_w: 0}"}, ("'A100'", "'CPU'", "table.yaml:3")),
        ({"zoo": "{accuracy: 0.5}"}, ("zoo.accuracy",)),
        ({"lineage": "{tune: zeus-jit}"}, ("tune: zeus-jit",)),
        ({"lineage": "{configure: zeus}"}, ("configure: zeus", "lineage")),
        (
            {"workload": "{kind: tabular, table: none, models: 3, strategy: {kind: greedy}}"},
            ("no trace named 'none'", "table.yaml:4"),
        ),
        (
            {"workload": "{kind: tabular, table: events, models: 3, strategy: {kind: greedy}}"},
            ("trace 'events' holds node-events; networks are needed", "table.yaml:4"),
        ),
        (
            {
                "workload": "{kind: tabular, table: digits-space, task: cats, models: 3, "
                "strategy: {kind: greedy}}"
            },
            ("task: 'cats'", "digits", "table.yaml:4"),
        ),
        (
            {
                "workload": "{kind: tabular, table: digits-space, models: 257, "
                "strategy: {kind: random}}"
            },
            ("models: the space has only 256 networks", "table.yaml:4"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    changed: dict[str, str], facts: tuple[str, ...], tmp_path: Path, inside: Command
) -> None:
    (tmp_path / "nodes.csv").write_text("time_s,event,node\n0,down,a\n")
    inside("traces", "import", "node-events", "nodes.csv", "--name", "events")
    done = inside("run", write(tmp_path, **changed), "--out", "out", code=2)
    assert_states(done.stderr, *facts)
    assert not (tmp_path / "out").exists()


def test_tables_are_simulated_only(tmp_path: Path, inside: Command) -> None:
    done = inside("run", write(tmp_path), "--live", code=2)
    assert_states(done.stderr, "table.yaml:4", "simulated only")


@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the table of NAS-Bench-201 is not here")
def test_nas_bench_201_is_searched(tmp_path: Path, inside: Command) -> None:
    inside("traces", "import", "nas-table", BENCHMARK, "--name", "cells")
    workload = (
        "{kind: tabular, table: cells, task: cifar100, models: 30, strategy: {kind: evolution}}"
    )
    inside("run", write(tmp_path, workload=workload), "--out", "out", "--check")
    for row in rows_of(tmp_path / "out"):
        is_modelled = row["parent_model"] is not None
        assert row["replayed"] == ("modelled" if is_modelled else "recorded")
        assert 1 <= row["epochs"] <= 200
        assert is_modelled or row["epochs"] == 200
    described = inside("traces", "describe", "cells").stdout
    assert_states(described, "cifar10: 15,625 networks", "cannot tell", "others are modelled")
    done = inside("run", write(tmp_path, workload=workload.replace("task: cifar100, ", "")), code=2)
    assert_states(done.stderr, "task:", "cifar10, cifar100")
