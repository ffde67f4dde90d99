"""The commands under `wattkeeper traces`, and runs on what they make."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.runs import names
from wattkeeper.scenarios.cli.main import main

GROUPS = """\
group,start_time,end_time,dataset,runtime_ratio
a,0,100,image,1
a,50,150,image,1.5
b,60,90,language,0.5
"""


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.csv"
    path.write_text(GROUPS)
    return path


def library(tmp_path: Path) -> dict[str, bytes]:
    root = tmp_path / "library"
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_traces_are_imported_replaced_listed_and_described(
    command: Command, inside: Command, groups: Path, tmp_path: Path
) -> None:
    assert "No traces in" in inside("traces", "list").stdout
    assert json.loads(inside("traces", "list", "--json").stdout) == []
    assert "3 jobs" in command("traces", "import", "zeus-groups", "groups.csv").stdout
    before = library(tmp_path)
    assert sorted(before) == ["groups/jobs.parquet", "groups/trace.json"]
    done = inside("traces", "import", "zeus-groups", "groups.csv", code=2)
    assert_states(done.stderr, "groups", "exists", "--replace", "name")
    assert library(tmp_path) == before
    groups.write_text(GROUPS + "b,70,95,language,1\n")
    inside("traces", "import", "zeus-groups", "groups.csv", "--replace")
    inside("traces", "import", "zeus-groups", "groups.csv", "--name", "other")
    assert library(tmp_path)["groups/jobs.parquet"] != before["groups/jobs.parquet"]
    done = inside("traces", "generate", "profiles", "--seed", "7")
    assert done.stdout.splitlines()[-1].startswith("synthetic (profiles, synthetic): ")
    lines = command("traces", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "groups", "other", "synthetic"]
    rows = json.loads(inside("traces", "list", "--json").stdout)
    assert [(row["name"], row["kind"]) for row in rows] == [
        ("groups", "jobs"),
        ("other", "jobs"),
        ("synthetic", "profiles"),
    ]
    assert "groups" in inside("traces", "describe", "groups").stdout
    assert json.loads(inside("traces", "describe", "groups", "--json").stdout)
    done = inside("traces", "describe", "nope", code=2)
    assert_states(done.stderr, "'nope'", "groups, other, synthetic")


def test_jobs_of_a_trace_run(inside: Command, groups: Path, tmp_path: Path) -> None:
    inside("traces", "import", "zeus-groups", "groups.csv")
    jobs = "workload={kind: trace, trace: groups, profiles: {synthetic: {}}}"
    inside("run", "quickstart", "--seeds", "1", "--set", jobs, "--out", "out")
    ran = pd.read_parquet(tmp_path / "out/jobs.parquet")
    default = ran[ran["variant"] == "default"].sort_values("submit_time_s")
    assert default["submit_time_s"].tolist() == [0.0, 50.0, 60.0]
    assert default["time_scale"].tolist() == [1.0, 1.5, 0.5]
    assert default["workload"].tolist() == ["image", "image", "language"]
    done = inside("run", "quickstart", "--set", jobs.replace("groups", "none"), code=2)
    assert_states(done.stderr, "'none'", "groups")
    wrong = "workload.profiles=groups"
    done = inside("run", "quickstart", "--set", wrong, code=2)
    assert done.stderr.startswith(f"--set {wrong}: ")
    assert_states(done.stderr, "'groups'", "jobs", "profiles")


def test_a_truncated_trace_does_not_run(inside: Command, groups: Path, tmp_path: Path) -> None:
    inside("traces", "generate", "profiles")
    table = tmp_path / "library/synthetic/profiles.parquet"
    table.write_bytes(table.read_bytes()[:1000])
    done = inside("run", "quickstart", "--set", "workload.profiles=synthetic", code=2)
    assert_states(done.stderr, "library/synthetic/profiles.parquet: ", "truncated")
    assert names(tmp_path) == ["groups.csv", "library"]
    assert "broken" in inside("traces", "list", "--json", code=2).stdout
    inside("traces", "generate", "profiles", "--replace")
    assert "good" in inside("validate", "quickstart", "--set", "workload.profiles=synthetic").stdout


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("group,start_time\na,1\n", "groups.csv, header: ", "end_time|missing"),
        ("", "groups.csv: ", "is empty"),
        (GROUPS.splitlines()[0], "groups.csv: ", "no rows"),
        (GROUPS.replace("50", "x"), "groups.csv, row 2: ", "start_time|'x'|number"),
        (GROUPS.replace("90", "9"), "groups.csv, row 3: ", "end_time|9.0|start_time"),
        (GROUPS + "a,1\n", "groups.csv, row 4: ", "2|5"),
    ],
    ids=["missing column", "empty", "no rows", "no number", "ends before", "short row"],
)
def test_a_bad_csv_file(groups: Path, tmp_path: Path, text: str, where: str, words: str) -> None:
    groups.write_text(text)
    env = {"WATTKEEPER_TRACES": str(tmp_path / "library")}
    done = CliRunner().invoke(main, ["traces", "import", "zeus-groups", str(groups)], env=env)
    assert done.exit_code == 2
    assert done.stdout == ""
    line = done.stderr.splitlines()[0]
    assert line.startswith(str(groups.parent / where))
    assert_states(line.removeprefix(str(groups.parent / where)), *words.split("|"))
    assert library(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "zeus-groups", "missing.csv"], "missing.csv: no such file"),
        (["import", "zeus-nsdi23", "missing"], "missing: "),
        (["import", "nope", "groups.csv"], "'nope'|acme"),
        (["import", "zeus-groups"], "argument 'PATH...'"),
        (["import", "zeus-groups", "groups.csv", "--name", "../x"], "'../x'|allowed"),
        (["generate", "nope"], "command 'nope'"),
        (["generate", "profiles", "--name", "a b"], "'a b'|allowed"),
        (["generate", "profiles", "--seed", "-1"], "--seed"),
        (["describe", "nope"], "there is nothing yet"),
        (["describe", "nope", "--eta", "2"], "--eta"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_of_traces(
    groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"WATTKEEPER_TRACES": str(tmp_path / "library")}
    done = CliRunner().invoke(main, ["traces", *arguments], env=env)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert_states(done.stderr, *words.split("|"))
    assert library(tmp_path) == {}


def test_a_missing_path_is_called_missing(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["traces", "import", "zeus-nsdi23", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert re.search(r"none: (no such|does not exist|is missing)", done.stderr), done.stderr
