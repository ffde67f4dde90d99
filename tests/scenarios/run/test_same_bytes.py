"""The same scenario and seed give the same bytes, whatever runs beside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import ROOT, Command, run_command
from tests.support.runs import QUICK, RESULTS, Ran, content, digest, seeds_of
from wattkeeper.scenarios.run.core import is_compiled
from wattkeeper.scenarios.spec.loading import load, shipped
from wattkeeper.scenarios.spec.sections.workload import SyntheticSource

GOLDEN = {
    "versions": {"python": "3.11.7", "numpy": "2.4.6", "pyarrow": "26.0.1", "simpy": "4.1.2"},
    "carbon-deadlines": "411fc49da368a14e8034917133e21123468c907fd7fb40835478c9472632ca2f",
    "carbon-limits": "9dc4773d495af44c8f4c5d7ad11f767796444b6c8a1d4b08edb1c87b9426b026",
    "quickstart": "2db3fc1875ac0727e23f77e139f086cc9b985a87a3dccf5d8e70d44062e03d0e",
    "zoo-bandits": "f816a44f82691a27e88c8f5cb4be282a99154ae86b15affd0ea294f5d78a067f",
}
"""Digests of results by scenario, and what they were made with. A change of them is a change of
results: put the new ones here if it is meant, and say so in the changelog."""


def test_golden_digests(inside: Command, tmp_path: Path) -> None:
    profiles = {n: getattr(load(n).scenario.workload, "profiles", None) for n in shipped()}
    synthetic = [name for name, found in profiles.items() if isinstance(found, SyntheticSource)]
    assert synthetic == [name for name in GOLDEN if name != "versions"]
    manifests = {}
    for name in synthetic:
        inside("run", name, "--out", name)
        text = (tmp_path / name / "manifest.json").read_text(encoding="utf-8")
        manifests[name] = json.loads(text)
    for name, manifest in manifests.items():
        versions = {key: manifest["versions"][key] for key in GOLDEN["versions"]}
        assert manifest["results_digest"] == GOLDEN[name], f"{name} was made with {versions}"


@pytest.mark.parametrize(("workers", "hashes"), [("2", "12345")])
def test_workers_and_hash_seeds_change_no_byte(
    quick: Ran, tmp_path: Path, workers: str, hashes: str
) -> None:
    done = run_command(
        "run",
        *QUICK,
        "--workers",
        workers,
        "--out",
        "out",
        traces=tmp_path / "library",
        cwd=tmp_path,
        PYTHONHASHSEED=hashes,
    )
    assert done.stdout == quick.stdout
    again, first = content(tmp_path / "out"), content(quick.folder)
    for name in RESULTS:
        assert again[name] == first[name], name
    manifests = [json.loads(files["manifest.json"]) for files in (again, first)]
    assert all(manifest.pop("wall_s") > 0 for manifest in manifests)
    assert manifests[0] == manifests[1]


CLUSTER = ("run", "million-jobs", "--set", "workload.trace=some", "--set", "cluster.gpus=64")


@pytest.mark.skipif(not is_compiled(), reason="the core is plain Python")
def test_plain_python_gives_the_same_bytes_as_the_compiled_core(
    inside: Command, tmp_path: Path
) -> None:
    """A world that a C compiler had no part in: the packages without their built modules."""
    inside("traces", "generate", "jobs", "--name", "some", "--jobs", "3000")
    runs = (("quickstart", ("run", "quickstart")), ("cluster", CLUSTER))
    for name, arguments in runs:
        inside(*arguments, "--out", f"here/{name}")
    plain = tmp_path / "plain"
    for floor in ("policies", "traces", "sim", "live", "scenarios"):
        built = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / floor, plain / "wattkeeper" / floor, ignore=built)
    where = "import wattkeeper.sim.engine.world as world; print(world.__file__)"
    loaded = subprocess.run(
        [sys.executable, "-c", where],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(plain)},
    ).stdout
    assert loaded.strip() == str(plain / "wattkeeper/sim/engine/world.py")
    for name, arguments in runs:
        run_command(
            *arguments,
            "--out",
            f"there/{name}",
            traces=tmp_path / "library",
            cwd=tmp_path,
            PYTHONPATH=str(plain),
        )
        here, there = (content(tmp_path / side / name) for side in ("here", "there"))
        for file in RESULTS:
            assert here[file] == there[file], (name, file)


def test_a_run_does_not_depend_on_the_others(quick: Ran, inside: Command, tmp_path: Path) -> None:
    """Seeds and variants that run beside it change nothing in a run."""
    inside("run", *QUICK, "--seeds", "3..3", "--set", "variants.oracle={}", "--out", "out")
    ours, theirs = pd.read_parquet(tmp_path / "out/jobs.parquet"), quick.table("jobs")
    for name in ("default", "zeus", "grid-search"):
        mine = ours[ours["variant"] == name].reset_index(drop=True)
        other = theirs[(theirs["variant"] == name) & (theirs["seed"] == 3)].reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, other, check_exact=True)


def test_seeds(quick: Ran, inside: Command, tmp_path: Path) -> None:
    for text, seeds in (("3", [1, 2, 3]), ("2..4", [2, 3, 4]), ("1", [1]), ("2..2", [2])):
        inside("run", *QUICK, "--seeds", text, "--out", text)
        assert seeds_of(tmp_path / text) == (seeds, seeds)
    digests = {digest(quick.folder), *(digest(tmp_path / x) for x in ("3", "2..4", "1", "2..2"))}
    assert len(digests) == 5
    one = json.loads((tmp_path / "1/summary.json").read_text())["variants"]["zeus"]
    assert one["metrics"]["energy_j"]["n"] == 1
    assert one["metrics"]["energy_j"]["std"] is one["metrics"]["energy_j"]["ci95"] is None
    assert one["versus"]["energy_j"]["ci95"] is None
    ours, theirs = pd.read_parquet(tmp_path / "3/jobs.parquet"), quick.table("jobs")
    theirs = theirs[theirs["seed"] <= 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
