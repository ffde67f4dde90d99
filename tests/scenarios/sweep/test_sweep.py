"""Sweeps: points, messages, what they leave behind, and runs that fail."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from collections import Counter
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Command
from tests.support.messages import assert_states
from tests.support.sweeps import SMALL, content, ended, start, units, until, workers
from wattkeeper import scenarios
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.scenarios.analysis import study
from wattkeeper.scenarios.run import run as run_scenario
from wattkeeper.scenarios.run.unit import UnitResult
from wattkeeper.scenarios.spec import loading
from wattkeeper.scenarios.spec.loading import find_scenario
from wattkeeper.scenarios.sweep import run
from wattkeeper.scenarios.sweep.cache import load, lock_folder, remove_folder, store
from wattkeeper.scenarios.sweep.points import expand_sweep
from wattkeeper.scenarios.sweep.work import PointWork
from wattkeeper.sim.cluster_results.accounting import Account, EnergyParts, Sleeps, Window
from wattkeeper.sim.cluster_results.tables import ClusterResult
from wattkeeper.sim.results import checksums
from wattkeeper.sim.results.summary import VALUES
from wattkeeper.traces.files import atomic
from wattkeeper.traces.files.digests import digest_file

ETAS = st.lists(st.floats(0, 1).map(lambda eta: round(eta, 3)), min_size=1, max_size=3, unique=True)
GPUS = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)
AXES = st.fixed_dictionaries({"objective.eta": ETAS, "cluster.gpus": GPUS})


def expected(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]


@given(AXES)
def test_a_sweep_is_the_product_of_its_axes(axes: dict[str, list[Any]]) -> None:
    found = expand_sweep(scenarios.load("quickstart", [f"sweep={json.dumps(axes)}"]))
    assert [point.values for point in found] == expected(axes)
    assert [point.id for point in found] == [f"{n:04}" for n in range(1, len(found) + 1)]
    for point in found:
        scenario = point.loaded.scenario
        assert scenario.sweep is None
        assert scenario.objective.eta == point.values["objective.eta"]
        assert getattr(scenario.cluster, "gpus", 0) == point.values["cluster.gpus"]
    options = [f"{path}={','.join(map(str, values))}" for path, values in axes.items()]
    same = expand_sweep(scenarios.load("quickstart", axes=options))
    assert [point.values for point in same] == [point.values for point in found]


@given(AXES, st.integers(10, 12))
def test_a_list_holds_one_product_after_the_other(axes: dict[str, list[Any]], gpus: int) -> None:
    items = [axes, {"objective.eta": 0.5, "cluster.gpus": gpus}]
    found = expand_sweep(scenarios.load("quickstart", [f"sweep={json.dumps(items)}"]))
    assert [point.values for point in found] == [*expected(axes), items[1]]


@pytest.mark.parametrize(
    ("axes", "facts"),
    [
        (["objective.eta=0,2,x"], ["eta: found 2", "less than or equal to 1", "text 'x'"]),
        (["objective.etaa=0,1"], ["'etaa'", "'eta'"]),
        (["objective.eta"], ["path.to.key=value,value"]),
        (["objective.eta="], ["objective.eta has no values"]),
        (["objective.eta=0,[1"], ["not YAML"]),
        (["objective.eta=0,0.0"], ["objective.eta=0.0 ", "same", "objective.eta=0"]),
        (["objective.eta=0", "objective.eta=1"], ["a second axis objective.eta"]),
        (["seeds=1,2", "name=a"], ["seeds are repetitions", "name is no axis"]),
        (["sweep.cluster.gpus=1"], ["a sweep has no sweep inside"]),
        (["objective=0", "objective.eta=1"], ["objective.eta is a part of objective"]),
        (["variants.zuus.policies.configure.beta=1,2"], ["'zuus'", "default"]),
        (["variants={}"], ["name a key of one of them"]),
        (
            ["cluster.gpu=V100,SYN-400W,A40"],
            ["1 x V100", "1 x SYN-250W, 1 x SYN-400W", "(at cluster.gpu=V100)", "1 x A40"],
        ),
        (
            ["variants.zeus.policies.tune=zeus-jit,{kind: fixed-power, power_limit_w: 111}"],
            ["variant 'zeus'", "111 W", "100, 125, 150, 175, 200, 225, 250 W"],
        ),
    ],
)
def test_a_bad_sweep_is_refused_before_anything_runs(
    axes: list[str], facts: list[str], inside: Command, tmp_path: Path
) -> None:
    options = [word for axis in axes for word in ("--sweep", axis)]
    for command in ("validate", "run"):
        told = inside(command, "quickstart", *options, code=2).stderr
        assert_states(told, *facts)
        assert all(line.startswith("--sweep ") for line in told.splitlines())
    assert not list(tmp_path.iterdir())


def test_problems_of_a_file_have_line_and_column(inside: Command, tmp_path: Path) -> None:
    text = (
        find_scenario("quickstart").read_text()
        + "sweep:\n- {objective.eta: [0, 3], cluster.gpus: 0}\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    line = len(text.splitlines())
    assert inside("validate", "a.yaml", code=2).stderr.splitlines() == [
        f"a.yaml:{line}:23: eta: found 3; should be less than or equal to 1",
        f"a.yaml:{line}:41: gpus: found 0; should be greater than 0",
    ]
    (tmp_path / "a.yaml").write_text(text + "- {objective.eta: 1}\n")
    assert (
        f"a.yaml:{line + 1}:3: sweep: items have the same axes"
        in inside("validate", "a.yaml", code=2).stderr
    )
    many = ("--set", "seeds=5000", "--sweep", "cluster.gpus=1,2,3,4,5,6")
    told = inside("validate", "quickstart", *many, code=2).stderr
    assert_states(told, "sweep: ", "120,000 runs", "100,000")
    for wrong in ("3", "{}", "[]", "[{}]"):
        told = inside("validate", "quickstart", "--set", f"sweep={wrong}", code=2).stderr
        assert told.startswith(f"--set sweep={wrong}: sweep: found")


def test_a_setting_that_an_axis_hides_is_refused(inside: Command) -> None:
    eta = ("--sweep", "objective.eta=0,1", "--set", "objective.eta=0.5")
    told = inside("validate", "quickstart", *eta, code=2).stderr
    assert_states(told, "--set objective.eta=0.5: ", "change nothing", "--sweep objective.eta=...")
    told = inside("validate", "bandit-league", "--set", "cluster.gpu=T4", code=2).stderr
    assert_states(told, "--set cluster.gpu=T4: ", "--set sweep=null")
    profiles = (
        "--sweep",
        "workload.profiles={synthetic: {}}",
        "--set",
        "workload.profiles.synthetic.runs=3",
    )
    told = inside("validate", "quickstart", *profiles, code=2).stderr
    assert_states(told, "workload.profiles.synthetic.runs: it would change nothing")
    whole = ("--set", "cluster={gpu: SYN-250W, gpus: 6, gpus_per_node: 1, idle_power_w: 40}")
    inside("validate", "quickstart", "--sweep", "cluster.gpus=3,6", *whole)


def test_a_sweep_is_only_simulated_and_only_by_the_command(inside: Command) -> None:
    sweep = ("--sweep", "objective.eta=0,1")
    assert "leave out --live" in inside("run", "quickstart", *sweep, "--live", code=2).stderr
    told = inside("run", "quickstart", *sweep, "--workers", "2", "--ray", "a:1", code=2).stderr
    assert "leave it out with --ray" in told
    assert "2 points, 4 variants, 40 runs" in inside("validate", "quickstart", *sweep).stdout
    with pytest.raises(InputError, match="only the command runs"):
        scenarios.load("quickstart", axes=["objective.eta=0,1"]).run()


SWEEP = ("--sweep", "objective.eta=0,0.5", "--sweep", "workload.workloads=[image],[language]")


def test_what_a_sweep_leaves_behind(command: Command, inside: Command, tmp_path: Path) -> None:
    one = ("run", "quickstart", *SMALL[2:], "--seeds", "2", *SWEEP)
    said = command(*one, "--workers", "2", "--out", "two").stdout
    told = json.loads(inside(*one, "--json", "--out", "one").stdout)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert sorted(path.name for path in tmp_path.glob("*.sweep")) == []
    assert "eta" in said.partition("┏")[2].partition("┡")[0]
    assert "Results: two" in said
    refused = inside("timeline", "one", code=2).stderr
    assert refused.startswith("one: ")
    assert_states(refused, "sweep", "one/points/0001\n")

    about = json.loads((tmp_path / "one/sweep.json").read_text())
    assert about["axes"] == {
        "objective.eta": [0, 0.5],
        "workload.workloads": [["image"], ["language"]],
    }
    assert [point["id"] for point in about["points"]] == ["0001", "0002", "0003", "0004"]
    assert {point["state"] for point in about["points"]} == {"done"}
    assert told | {"points": about["points"]} == about
    summaries = [point["variants"] for point in told["points"]]

    third = about["points"][2]
    settings = [f"{path}={json.dumps(value)}" for path, value in third["values"].items()]
    alone = inside(
        "run",
        "quickstart",
        *SMALL,
        "--seeds",
        "2",
        "--out",
        "alone",
        *(word for setting in settings for word in ("--set", setting)),
    )
    assert alone.stdout
    whole = content(tmp_path / "alone")
    del whole["report.html"]  # `wattkeeper report` makes it
    assert whole == content(tmp_path / "one/points/0003")
    study = scenarios.read(tmp_path / "alone")
    assert study.manifest["results_digest"] == third["results_digest"]
    assert study.summary["variants"] == summaries[2]

    table = pq.read_table(tmp_path / "one/metrics.parquet")
    axes = ["objective.eta", "workload.workloads"]
    assert table.column_names == ["point", *axes, *VALUES.names]
    assert table.schema.field("objective.eta").type == "double"
    assert table["workload.workloads"].unique().to_pylist() == ['["image"]', '["language"]']
    own = table.filter(pq.filters_to_expression([("point", "=", "0003")]))
    assert own.select(VALUES.names).equals(study.table("metrics"))


def test_a_sweep_of_a_file_takes_the_place_of_older_results(
    inside: Command, tmp_path: Path
) -> None:
    scenario = yaml.safe_load(find_scenario("quickstart").read_text())
    scenario["sweep"] = {"workload.recurrences": [2, 3]}
    scenario["seeds"] = 1
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(scenario))
    a_run = ("run", "mine.yaml", "--set", "sweep=null", "--set", "workload.recurrences=2")
    inside(*a_run, "--out", "a-run")
    assert not (tmp_path / "a-run/sweep.json").exists()
    inside("run", "mine.yaml")
    assert_states(inside(*a_run, code=2).stderr, "results of a sweep")
    refused = inside("run", "mine.yaml", "--out", "a-run", code=2).stderr
    assert_states(refused, "a-run", "results of a run")
    assert len(list((tmp_path / "results/quickstart/points").iterdir())) == 2
    inside("run", "mine.yaml", "--sweep", "workload.recurrences=2")
    assert len(list((tmp_path / "results/quickstart/points").iterdir())) == 1
    (tmp_path / "results/quickstart.sweep").mkdir()
    (tmp_path / "results/quickstart.sweep/thesis.txt").touch()
    told = inside("run", "mine.yaml", code=2).stderr
    assert_states(told, "quickstart.sweep", "no sweep")


MOODY = '''
import os, signal
from pathlib import Path
from typing import Literal
from wattkeeper.policies.points.views import Configuration
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.registry import PolicyConfig


class MoodyConfig(PolicyConfig):
    """Fails where a file says so."""

    point = "configure"
    kind: Literal["moody"] = "moody"
    mood: str = "good"

    def build(self):
        return Moody(self.mood)


class Moody(Configure):
    def __init__(self, mood):
        self.mood = mood

    def configure(self, ctx, start):
        with open("begun", "a") as file:
            file.write(self.mood + "\\n")
        if Path(self.mood).exists():
            if self.mood == "deadly":
                os.kill(os.getpid(), signal.SIGKILL)
            raise Bad(self.mood, 7)
        return Configuration(start.options.batch_sizes[-1])


class Bad(Exception):
    def __init__(self, mood, number):  # cannot be unpickled
        super().__init__(f"I feel {mood}")
'''


def moody(folder: Path) -> Path:
    """A scenario with a policy of another distribution, which lies in a folder beside it."""
    place = folder / "site"
    info = place / "moody-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "moody.py").write_text(MOODY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wattkeeper.policies]\nmoody = moody\n")
    scenario = yaml.safe_load(find_scenario("quickstart").read_text())
    scenario["workload"] |= {"workloads": ["image"], "recurrences": 3}
    scenario["variants"] = {"default": {}, "moody": {"policies": {"configure": {"kind": "moody"}}}}
    scenario |= {"seeds": 1, "name": "moody"}
    scenario["sweep"] = {"variants.moody.policies.configure.mood": ["good", "bad", "deadly"]}
    (folder / "moody.yaml").write_text(yaml.safe_dump(scenario))
    return place


def begun(folder: Path) -> list[str]:
    return (folder / "begun").read_text().splitlines()


def test_runs_that_fail_lose_nothing_else(tmp_path: Path) -> None:
    place, kept = moody(tmp_path), tmp_path / "results/moody.sweep"
    for mood in ("bad", "deadly"):
        (tmp_path / mood).touch()
    out, err = ended(start("moody.yaml", "--workers", "2", cwd=tmp_path, path=place), 1)
    about = json.loads((tmp_path / "results/moody/sweep.json").read_text())
    assert [point["state"] for point in about["points"]] == ["done", "failed", "failed"]
    path = "variants.moody.policies.configure.mood"
    (failure,) = about["points"][1]["failures"]
    assert_states(failure["message"], "variant 'moody'", "configure policy", "Bad: I feel bad")
    assert failure == {"variant": "moody", "seed": 1, "message": failure["message"]}
    assert f"0002 ({path}=bad), moody, seed 1: {failure['message']}" in err
    assert_states(err, f"0003 ({path}=deadly), moody, seed 1: ", "killed, 3 times")
    assert "tries the failed runs again" in err
    assert_states(err, f"{kept / 'errors.txt'}\n")
    told = (kept / "errors.txt").read_text()
    assert told.startswith(f"0002 ({path}=bad), moody, seed 1: {failure['message']}\n")
    raised = (
        f"line {MOODY.splitlines().index('            raise Bad(self.mood, 7)') + 1}, in configure"
    )
    assert f'moody.py", {raised}' in told
    assert told.count(raised) == 1
    assert "Traceback" not in told
    assert about["points"][1]["results_digest"] is None
    assert [folder.name for folder in (tmp_path / "results/moody/points").iterdir()] == ["0001"]
    table = pq.read_table(tmp_path / "results/moody/metrics.parquet", columns=["point", "variant"])
    there = {tuple(row.values()) for row in table.to_pylist()}
    assert there == {
        ("0001", "default"),
        ("0001", "moody"),
        ("0002", "default"),
        ("0003", "default"),
    }
    assert begun(tmp_path).count("deadly") == 3
    assert units(kept) == 2
    assert "Results: results/moody" in out

    for name in ("bad", "deadly", "begun"):
        (tmp_path / name).unlink()
    _, err = ended(start("moody.yaml", cwd=tmp_path, path=place))
    assert "4 of 6 runs are done" in err
    assert set(begun(tmp_path)) == {"bad", "deadly"}
    assert not kept.exists()
    ended(start("moody.yaml", "--out", "fresh", cwd=tmp_path, path=place))
    assert content(tmp_path / "fresh") == content(tmp_path / "results/moody")


@pytest.mark.slow
def test_results_of_other_code_are_not_used(tmp_path: Path) -> None:
    place = moody(tmp_path)
    (tmp_path / "bad").touch()
    moods = ("--sweep", "variants.moody.policies.configure.mood=good,bad")
    ended(start("moody.yaml", *moods, cwd=tmp_path, path=place), 1)
    source = place / "moody.py"
    source.write_text(source.read_text().replace("[-1]", "[0]"))
    (tmp_path / "bad").unlink()
    _, err = ended(start("moody.yaml", *moods, cwd=tmp_path, path=place))
    assert "Goes on" not in err


def test_a_plain_run_survives_the_loss_of_a_worker(inside: Command, tmp_path: Path) -> None:
    one = ("quickstart", *SMALL, "--set", "workload.recurrences=60", "--seeds", "6")
    process = start(*one, "--workers", "2", "--out", "two", cwd=tmp_path)
    assert until(lambda: len(workers(process.pid)) == 2, process)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    ended(process)
    inside("run", *one, "--out", "one")
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.slow
def test_a_plain_run_says_which_run_cannot_be_done(tmp_path: Path) -> None:
    place = moody(tmp_path)
    (tmp_path / "deadly").touch()
    mood = "variants.moody.policies.configure.mood=deadly"
    plain = ("moody.yaml", "--set", "sweep=null", "--set", mood, "--workers", "2")
    _, err = ended(start(*plain, cwd=tmp_path, path=place), 3)
    assert err.startswith("variant 'moody', seed 1: its process was killed, 3 times")


LONG = (
    "quickstart",
    *SMALL,
    "--set",
    "workload.recurrences=200",
    "--seeds",
    "5",
    "--sweep",
    "objective.eta=0.25,0.75",
    "--out",
    "out",
)


def test_a_sweep_killed_while_it_is_removed_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, point = tmp_path / "out.sweep", "0123abcd"
    remove = shutil.rmtree

    def killed(path: Path, dir_fd: int) -> None:
        raise KeyboardInterrupt

    with lock_folder(folder) as descriptor:
        (folder / point / "done").mkdir(parents=True)
        monkeypatch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(folder, descriptor)
        monkeypatch.setattr(shutil, "rmtree", remove)
    assert not (folder / point).exists(), "nothing half-removed looks whole"
    with lock_folder(folder) as descriptor:
        remove_folder(folder, descriptor)
    assert not folder.exists()


def count_calls(
    monkeypatch: pytest.MonkeyPatch, calls: Counter[str], module: ModuleType, name: str
) -> None:
    original = getattr(module, name)

    def counted(*arguments: Any, **more: Any) -> Any:
        calls[name] += 1
        return original(*arguments, **more)

    monkeypatch.setattr(module, name, counted)


def unit(number: int) -> UnitResult:
    """A result without tables."""
    nothing = Sleeps(*np.zeros((4, 0)))
    spent = Account(Window(0, 1), EnergyParts(1, 2, 3, 4), {}, 0, 0, nothing, 1, 1)
    return UnitResult(ClusterResult("a", number, {}, {}, {}, 0, "", spent), float(number))


def test_storing_a_value_neither_lists_nor_locks_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a sweep of thousands of runs would take time that grows with their square."""
    folder, calls = tmp_path / "out.sweep", Counter[str]()
    points = [folder / f"point{number}" for number in range(3)]

    with lock_folder(folder):
        for name in ("scandir", "listdir", "fsync"):
            count_calls(monkeypatch, calls, os, name)
        count_calls(monkeypatch, calls, fcntl, "flock")
        for point in points:
            for number in range(50):
                store(point / f"{number}-0", unit(number))
        assert not calls
        paths = [path for point in points for path in point.iterdir()]
        assert sum(load(path).wall_s for path in paths) == 3 * 1225
    for point in points:
        (point / ".0-0.0123456789ab.new").write_bytes(b"killed while this was stored")
    calls.clear()
    with lock_folder(folder):
        # All is listed to see whose it is; to settle it, the folder is listed twice, each point
        # once. The folder is locked; what each killed process left is locked and released.
        assert calls == {"listdir": 1, "scandir": 1 + 4 + 4, "flock": 1 + 2 * 3}
        assert sum(1 for point in points for _ in point.iterdir()) == 150
    with lock_folder(folder) as descriptor:
        remove_folder(folder, descriptor)


def test_a_point_of_quick_runs_costs_few_files_and_checks(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep of a thousand quick runs costs little more than the runs themselves."""
    points, calls = 3, Counter[str]()
    for module, name in (
        (loading, "validate"),
        (atomic, "sync"),
        (run, "store"),
        (run, "load"),
        (run, "run_unit"),
        (run, "assemble_point"),
        (study, "read_json"),
        (run_scenario, "summarise"),
    ):
        count_calls(monkeypatch, calls, module, name)
    inside("run", "quickstart", *SMALL, "--sweep", "objective.eta=0.2,0.5,0.8", "--out", "out")
    files = sum(1 for _ in (tmp_path / "out").rglob("*"))
    assert calls.pop("sync") < files + 10, "each file once, and the folders above"
    # The files of the first point are read for the page, too; manifests for `sweep.json`.
    assert calls == {
        "validate": points + 1,
        "run_unit": points * 10,
        "assemble_point": points,
        "summarise": points,
        "read_json": points * 3 + 2,
    }


def test_slow_runs_are_kept_one_by_one(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ("run", "quickstart", *SMALL, "--sweep", "objective.eta=0.3,0.6", "--out")
    inside(*sweep, "quick")
    monkeypatch.setattr(run, "LONGEST_S", -1.0)
    calls = Counter[str]()
    count_calls(monkeypatch, calls, run, "store")
    inside(*sweep, "slow")
    assert calls["store"] == 2 * 10
    assert content(tmp_path / "slow") == content(tmp_path / "quick")


def test_slow_runs_stay_when_their_point_cannot_be_assembled(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(work: PointWork, known: object = None) -> None:
        raise EnvironmentLacks("no space")

    sweep = ("run", "quickstart", *SMALL, "--sweep", "objective.eta=0.3,0.6", "--out", "out")
    monkeypatch.setattr(run, "LONGEST_S", -1.0)
    with monkeypatch.context() as full:
        full.setattr(run, "assemble_point", fail)
        assert_states(inside(*sweep, code=3).stderr, "no space")
    calls = Counter[str]()
    count_calls(monkeypatch, calls, run, "run_unit")
    inside(*sweep)
    assert calls["run_unit"] == 10, "those of the second point"


def test_a_sweep_does_not_start_in_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = tmp_path / "out.sweep", fcntl.flock

    def late(file: IO[str], how: int) -> None:
        lock(file, how)
        shutil.rmtree(folder)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(EnvironmentLacks, match="another process works"), lock_folder(folder):
        pass


def test_each_file_of_finished_points_is_hashed_once(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a sweep that goes on, and by a report; a file of 1 GB takes seconds."""
    sweep = ("run", "quickstart", *SMALL, "--sweep", "objective.eta=0.3,0.6", "--out", "out")
    with monkeypatch.context() as patch:
        patch.setattr(run, "write_sweep", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            inside(*sweep)
    hashed: Counter[int] = Counter()

    def count(path: Path) -> str:
        hashed[path.stat().st_ino] += 1
        return digest_file(path)

    monkeypatch.setattr(checksums, "digest_file", count)
    for command in (sweep, ("report", "out")):
        hashed.clear()
        assert "Goes on" in inside(*command).stderr or command[0] == "report"
        tables = [path.stat().st_ino for path in tmp_path.glob("out/points/*/jobs.parquet")]
        assert [hashed[number] for number in tables] == [1, 1], command


@pytest.mark.slow
def test_a_sweep_resumes_after_any_end(inside: Command, tmp_path: Path) -> None:
    inside("run", *LONG, "--out", "undisturbed")
    kept = tmp_path / "out.sweep"

    # With more workers than points, each gets one run after the other.
    process = start(*LONG, "--workers", "3", cwd=tmp_path)
    assert until(lambda: units(kept) > 1, process)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        _, err = ended(start(*LONG, cwd=tmp_path), 3)
        assert_states(err, "another process", "sweep")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    os.killpg(process.pid, signal.SIGINT)
    _, err = ended(process, 130)
    assert_states(err, "of 20 runs are done", "the same command")
    assert not (tmp_path / "out").exists()

    broken = next(path for path in kept.glob("*/*-*") if path.name[0] != ".")
    broken.write_bytes(broken.read_bytes()[:-9])  # as after a power failure
    so_far = units(kept)
    process = start(*LONG, cwd=tmp_path)
    assert until(lambda: units(kept) > so_far or any(kept.glob("*/done")), process)
    process.kill()
    process.communicate()

    said = inside("run", *LONG, "--json")
    assert "Goes on with" in said.stderr
    assert content(tmp_path / "out") == content(tmp_path / "undisturbed")
    assert not kept.exists()


def test_a_chart_along_an_axis_opens_on_a_metric_whose_lines_part(
    inside: Command, tmp_path: Path
) -> None:
    """Under any scheduler a cluster draws about as much, but jobs do not wait as long."""
    inside(
        "traces",
        "generate",
        "jobs",
        "--jobs",
        "2000",
        "--load",
        "1",
        "--gpus",
        "64",
        "--seed",
        "1",
        "--name",
        "pool",
    )
    variants = {"fifo": {}, "sjf": {"policies": {"select": "sjf"}}}
    inside(
        "run",
        "scheduler-pool",
        "--set",
        "workload.trace=pool",
        "--set",
        "baseline=fifo",
        "--set",
        f"variants={json.dumps(variants)}",
        "--sweep",
        "cluster.gpus=64,80",
        "--out",
        "out",
    )
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert '"views":{"job completion":' in page
    assert '"cluster energy":[' in page
