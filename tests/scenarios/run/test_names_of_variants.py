"""Names of variants are texts, never paths: each live run has a folder of its own, inside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

from tests.conftest import Command
from tests.scenarios.zoo.test_zoo_command import graph
from tests.support.live_runs import REHEARSED, run, scenario
from wattkeeper.live import Session
from wattkeeper.live.search.search import log_path
from wattkeeper.policies.errors import InputError, TraceError
from wattkeeper.traces.generate.synthetic import generate
from wattkeeper.traces.generate.synthetic_specs import SyntheticProfiles

NAMES = ["a", "./a", "a/", "../../x", ".", "..", "a b 100%", "é", "A", "a\\b", "{a}", "-a", "~"]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
def test_each_variant_of_a_live_run_has_a_folder_inside(tmp_path: Path) -> None:
    """`a` and `./a` shared a log: the second one replayed the first one's, with its figures."""
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    names = [*NAMES[:7], str(tmp_path / "absolute")]
    variants = {
        name: {"policies": {"configure": {"kind": "fixed", "batch_size": 32 << n % 2}}}
        for n, name in enumerate(names)
    }
    workload = {"workloads": ["image"], "recurrences": 1}
    path = scenario(home, REHEARSED | {"variants": variants, "baseline": "a"}, **workload)
    run(path, "--live", "--out", "live", cwd=home)
    run(path, "--out", "sim", cwd=home)
    jobs = [pd.read_parquet(home / out / "jobs.parquet") for out in ("live", "sim")]
    chosen = [table.groupby("variant")["batch_size"].agg(list).to_dict() for table in jobs]
    assert chosen[0] == chosen[1]
    assert set(chosen[0]) == set(names)
    assert len(list((home / "live.live").glob("*/1/log.sqlite"))) == len(names)
    assert (home / "live.live/a/1/log.sqlite").exists()
    assert files(tmp_path) - {f"deep/home/{name}" for name in files(home)} == {"deep", "deep/home"}
    assert {path.name for path in home.iterdir()} <= {
        "rehearsed.yaml",
        "live",
        "live.live",
        "sim",
        "library",
        "state",
    }


def test_each_variant_of_a_search_has_files_inside(tmp_path: Path) -> None:
    paths = {log_path(tmp_path, name, 1) for name in NAMES}
    assert len(paths) == len(NAMES)
    assert {path.resolve().parent for path in paths} == {tmp_path.resolve()}


@pytest.mark.parametrize("name", ["", "\x1b[31m", "a\nb", "\u202e", "x" * 201])
def test_names_that_cannot_be_shown_are_refused(tmp_path: Path, name: str) -> None:
    path = scenario(tmp_path, REHEARSED | {"variants": {name: {}}, "baseline": name})
    refused = run(path, cwd=tmp_path, code=2).stderr
    assert "1 to 200 characters" in refused
    assert f"{path}:" in refused
    setting = f"variants={json.dumps({name: {}, 'a': {}})}"
    refused = run(path, "--set", setting, "--set", "baseline=a", cwd=tmp_path, code=2).stderr
    assert "1 to 200 characters" in refused


HIDDEN = "a\x1b[31m"


def test_names_are_checked_wherever_they_come_in(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(graph(4, 2).to_json())
    (tmp_path / f"{HIDDEN}.json").write_text(graph(4, 2).to_json())
    save_file({"0.weight": np.ones((2, 4), "float32")}, tmp_path / "n.safetensors")
    add = ("zoo", "add", "--zoo", "zoo", "--weights", "n.safetensors", "--accuracy", "1")
    good = {"--graph": "net.json", "--task": "t", "--dataset": "d", "--name": "n"}

    def words(changes: dict[str, str]) -> list[str]:
        return [word for pair in (good | changes).items() for word in pair]

    for option in ("--task", "--dataset", "--name"):
        done = inside(*add, *words({option: HIDDEN}), code=2)
        assert "1 to 200 characters" in done.stderr
    done = inside(*add, *words({"--graph": f"{HIDDEN}.json"}), code=2)
    assert "1 to 200 characters" in done.stderr
    inside(*add, *words({}))
    match = ("zoo", "match", "--zoo", "zoo", "--child", "net.json", "--task")
    for more in ((HIDDEN,), ("t", "--dataset", HIDDEN), ("t", "--mutated-from", HIDDEN)):
        assert "1 to 200 characters" in inside(*match, *more, code=2).stderr
    (tmp_path / "jobs.csv").write_text("job_id,submit_time_s,duration_s,gpus\na,0,1,1\n")
    for name in ("../x", "/x", "a/b", ".", "", HIDDEN):
        for command in (("import", "csv", "jobs.csv"), ("generate", "profiles")):
            assert "letters, digits" in inside("traces", *command, "--name", name, code=2).stderr
        assert "letters, digits" in inside("record", "--name", name, "x.py", code=2).stderr
    with pytest.raises(InputError, match="1 to 200 characters"):
        Session(HIDDEN, batch_sizes=[1], default_batch_size=1, max_epochs=1, target=None)


def test_names_in_imported_tables_are_checked() -> None:
    trace = generate(SyntheticProfiles(), "made")
    tables = {name: table.to_pandas() for name, table in trace.tables.items()}
    for table in tables.values():
        table["workload"] = table["workload"].replace({"image": HIDDEN})
    changed = {
        name: pa.Table.from_pandas(table, trace.tables[name].schema, preserve_index=False)
        for name, table in tables.items()
    }
    with pytest.raises(TraceError, match=r"workloads.parquet, row \d: .*1 to 200 characters"):
        replace(trace, tables=changed)
