"""Trainings that crash, fail, hang or never report are outcomes, and what cannot run is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.support.live_runs import REHEARSED, decisions, manifest, rows, run, scenario
from tests.support.messages import assert_states
from wattkeeper.scenarios.cli.main import main

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

how, mark = sys.argv[1], Path(sys.argv[1])
first = not mark.exists()
mark.touch()
if first and how == "silent":
    time.sleep(1e6)
from wattkeeper.live import Session

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9, eta=0) as session:
    for epoch in session.epochs():
        session.report(epoch.number)
        if first and epoch.number == 2:
            if how == "crashed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hung":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "failed":
                raise ValueError("no such data")
"""

TRAINED: dict[str, Any] = {
    "name": "trained",
    "cluster": {"gpu": "cpu", "gpus": 4, "gpus_per_node": 1, "idle_power_w": 0},
    "workload": {"kind": "recurring", "recurrences": 1},
    "objective": {"eta": 0},
    # Trainings of milliseconds take twice their time now and then: none is stopped for that.
    "variants": {"zeus": {"policies": {"configure": {"kind": "zeus", "beta": 1e9}}}},
    "baseline": "zeus",
}
CAUSES = ("crashed", "failed", "hung", "silent")


def trained(folder: Path, workloads: dict[str, Any], **live: Any) -> Path:
    path = scenario(folder, TRAINED | {"live": {"lease_s": 6, "workloads": workloads, **live}})
    (folder / "train.py").write_text(SCRIPT)
    return path


def workload(*command: str) -> dict[str, Any]:
    return {
        "command": list(command),
        "batch_sizes": [8, 16],
        "default_batch_size": 8,
        "target": 3,
        "max_epochs": 5,
    }


@pytest.fixture(scope="module")
def lost_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run whose four trainings are each lost once, and what the run printed."""
    folder = tmp_path_factory.mktemp("lost")
    path = trained(folder, {how: workload("python", "train.py", how) for how in CAUSES})
    done = run(path, "--out", "live", "--live", cwd=folder, WATTKEEPER_DEVICE="none")
    return folder / "live", done.stdout


@pytest.fixture
def lost(lost_run: tuple[Path, str]) -> Path:
    return lost_run[0]


@pytest.mark.parametrize("how", CAUSES)
def test_a_lost_attempt_is_tried_again_as_it_was(lost: Path, how: str) -> None:
    causes = [
        (one["job_id"], one["attempt"], one["cause"]) for one in manifest(lost)["live"]["attempts"]
    ]
    assert (f"{how}/1", 1, how) in causes
    attempts = [row for row in rows(lost, "jobs") if row["job_id"] == f"{how}/1"]
    assert [row["reached_target"] for row in attempts] == [False] * (len(attempts) - 1) + [True]
    assert not any(row["early_stopped"] for row in attempts)
    assert {row["batch_size"] for row in attempts} == {8}
    chosen = [one for one in decisions(lost) if one[0] == "configure" and one[2] == f"{how}/1"]
    assert len(chosen) == 1, "no policy was asked again"
    assert attempts[-1]["epochs"] == 3


def test_unmeasured_energy_is_absent(lost: Path) -> None:
    assert {row["energy_j"] for row in rows(lost, "jobs")} == {None}
    assert {row["power_w"] for row in rows(lost, "timeline")} == {None}
    assert manifest(lost)["live"]["energy"] == ["absent"]


def test_unmeasured_energy_is_absent_by_workload(lost: Path) -> None:
    summary = json.loads((lost / "summary.json").read_text())
    for parts in summary["by"].values():
        for variants in parts.values():
            metrics = variants["zeus"]["metrics"]
            for name in ("energy_j", "last5_energy_j", "energy_to_accuracy_j", "regret"):
                assert metrics[name]["mean"] is None, name
            assert metrics["time_s"]["mean"] > 0
    metrics = summary["variants"]["zeus"]["metrics"]
    assert metrics["regret"]["mean"] is metrics["cluster_energy_j"]["mean"] is None


def test_the_message_of_a_failed_script_is_reported(lost: Path) -> None:
    (message,) = [
        one["message"] for one in manifest(lost)["live"]["attempts"] if one["cause"] == "failed"
    ]
    assert message == "ValueError: no such data"


def test_lost_attempts_are_counted_and_their_output_is_named(lost_run: tuple[Path, str]) -> None:
    folder, printed = lost_run
    said = " ".join(printed.split())
    causes = Counter(one["cause"] for one in manifest(folder)["live"]["attempts"])
    assert f"{causes.total()} attempts lost: " in said
    for cause, count in causes.items():
        assert f"{count} {cause}" in said
    output = Path(manifest(folder)["live"]["folder"]) / "zeus" / "1" / "output"
    assert f"{output}" in printed.replace("\n", "").replace(" ", "")
    assert list(output.glob("_failed-1#1*.err"))


@pytest.mark.parametrize(
    ("code", "output", "last"),
    [
        ("print('done')", ".out; ", "done"),
        ("raise ValueError('no such data')", ".err; ", "ValueError: no such data"),
        ("pass", "", "no output"),
    ],
)
def test_a_command_without_a_session_ends_the_run(
    code: str, output: str, last: str, tmp_path: Path
) -> None:
    path = trained(tmp_path, {"none": workload("python", "-c", code)})
    said = run(path, "--live", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none").stderr
    assert_states(said, "workload 'none'", "3 times", "Session", output)
    assert said.rstrip().endswith(last)
    for name in re.findall(r"/\S*#3\S*\.(?:out|err)", said):
        assert Path(name).stat().st_size, "only files that hold something are named"


FAILING = """
import os, signal, sys, time

if HOW == "sleeps":
    print("no such data", file=sys.stderr, flush=True)
    time.sleep(3600)

from wattkeeper.live import Session

def load():
    raise ValueError("no such data")

def batches():
    load()

with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9, eta=0) as session:
    for epoch in session.epochs():
        if HOW == "raises":
            batches()
        if HOW == "hangs":
            os.kill(os.getpid(), signal.SIGSTOP)
        if HOW == "exits":
            print("no such data", file=sys.stderr, flush=True)
            os._exit(4)
        if HOW == "memory" and session.batch_size == 8:
            raise MemoryError("8 samples are too many")
        if HOW == "later" and epoch.number == 2:
            raise ValueError("no such data")
        session.report(epoch.number)
"""


def failing(folder: Path, how: str, recurrences: int = 1, lease_s: float = 60) -> Path:
    (folder / "fails.py").write_text(f"HOW = {how!r}{FAILING}")
    workloads = {"one": workload("python", "fails.py")}
    return scenario(
        folder,
        TRAINED | {"live": {"lease_s": lease_s, "workloads": workloads}, "max_attempts": 4},
        recurrences=recurrences,
    )


@pytest.mark.parametrize("how", ["raises", pytest.param("exits", marks=pytest.mark.slow)])
def test_a_script_that_always_fails_ends_the_run_until_it_is_repaired(
    how: str, tmp_path: Path
) -> None:
    path = failing(tmp_path, how, recurrences=5)
    arguments = (path, "--live", "--out", "live")
    said = run(*arguments, cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none").stderr
    why = "ValueError: no such data" if how == "raises" else "exit code 4"
    assert_states(said, "workload 'one'", "failed 3 times", "epoch", "batch size 8", why)
    assert said.rstrip().endswith("no such data"), "the last line of its log"
    (log,) = re.findall(r"its output is in (\S+#3\S*\.err);", said)
    assert "no such data" in Path(log).read_text()
    failing(tmp_path, "mended", recurrences=5)
    run(*arguments, cwd=tmp_path, WATTKEEPER_DEVICE="none")
    first = [row for row in rows(tmp_path / "live", "jobs") if row["job_id"] == "one/1"]
    assert [row["reached_target"] for row in first] == [False, False, False, True]
    assert len(rows(tmp_path / "live", "jobs")) == 3 + 5
    lost = manifest(tmp_path / "live")["live"]["attempts"]
    assert [(one["attempt"], one["message"]) for one in lost] == [(n, why) for n in (1, 2, 3)]


def test_a_script_without_a_session_ends_the_run(tmp_path: Path) -> None:
    path = failing(tmp_path, "sleeps", lease_s=3)
    arguments = ("--live", "--out", "live")
    said = run(path, *arguments, cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none").stderr
    assert_states(said, "failed 3 times", "batch size 8", "no Session", "3 s (live.lease_s)")
    assert said.rstrip().endswith("no such data"), "the last line of its log"
    failing(tmp_path, "mended")  # and more time to start
    run(path, *arguments, cwd=tmp_path, WATTKEEPER_DEVICE="none")
    causes = [one["cause"] for one in manifest(tmp_path / "live")["live"]["attempts"]]
    assert causes == ["silent"] * 3


@pytest.mark.slow
def test_a_script_that_hangs_in_its_first_epoch_ends_the_run(tmp_path: Path) -> None:
    path = failing(tmp_path, "hangs", lease_s=6)
    said = run(path, "--live", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none").stderr
    assert_states(said, "batch size 8", "Session", "silent", "6 s (live.lease_s)")


@pytest.mark.parametrize("how", ["memory", pytest.param("later", marks=pytest.mark.slow)])
def test_running_out_of_memory_or_failing_later_does_not_end_the_run(
    how: str, tmp_path: Path
) -> None:
    path = failing(tmp_path, how, recurrences=2)
    run(path, "--live", "--out", "live", cwd=tmp_path, WATTKEEPER_DEVICE="none")
    causes = Counter(one["cause"] for one in manifest(tmp_path / "live")["live"]["attempts"])
    tried = {row["batch_size"]: row["reached_target"] for row in rows(tmp_path / "live", "jobs")}
    if how == "memory":
        assert tried == {8: False, 16: True}, "the policy learnt of it"
        assert causes == {"failed": 4}
    else:
        assert causes == {"failed": 8}, "as often as max_attempts allows"


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        ({"variants": {"zeus": {"policies": {"configure": "oracle"}}}}, 2, "oracle|foresight"),
        ({"profiling": "foreknown"}, 2, "profiling|foreknown"),
        ({"live": {"speed": 2, "workloads": {"image": workload("true")}}}, 2, "speed|real"),
        ({"live": {"workloads": {"imago": workload("true")}}}, 2, "'imago'|image"),
        ({"live": {"workloads": {"image": workload("trainify")}}}, 2, "'trainify'"),
        (
            {"live": {"workloads": {"image": workload("true") | {"default_batch_size": 3}}}},
            2,
            "default_batch_size: 3 |8, 16",
        ),
        ({"live": {"workloads": {"image": workload("true")}}}, 3, "energy|eta"),
        (
            {
                "workload": {"kind": "search", "models": 2},
                "variants": {"zeus": {}},
                "cluster": {"gpu": "cpu", "gpus": 1, "idle_power_w": 0},
            },
            2,
            "search|--live",
        ),
    ],
)
def test_what_cannot_run_live_is_refused(
    change: dict[str, Any], code: int, facts: str, tmp_path: Path, monkeypatch: Any
) -> None:
    content = REHEARSED | {"live": {}} | change
    path, out = tmp_path / "refused.yaml", tmp_path / "results"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("WATTKEEPER_DEVICE", "none")
    done = CliRunner().invoke(main, ["run", str(path), "--live", "--out", str(out)])
    assert done.exit_code == code
    assert_states(done.stderr, *facts.split("|"))
    assert not out.exists()


def test_an_error_names_the_variant(tmp_path: Path) -> None:
    variants = {"plain": {}, "knowing": {"policies": {"configure": "oracle"}}}
    path = scenario(tmp_path, REHEARSED | {"variants": variants, "baseline": "plain"})
    said = run(path, "--live", cwd=tmp_path, code=2).stderr
    (line,) = (n for n, text in enumerate(path.read_text().splitlines(), 1) if "oracle" in text)
    assert said.startswith(f"{path}:{line}:"), said
    assert said.count("variant '") == 1, said


def test_a_workload_without_profiles_cannot_be_simulated(tmp_path: Path) -> None:
    path = trained(tmp_path, {"some": workload("true")})
    assert "wattkeeper record" in run(path, cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize(("gpu", "said"), [("V100", True), ("cpu", False)])
def test_other_devices_than_in_the_scenario_are_reported(
    gpu: str, said: bool, tmp_path: Path
) -> None:
    code = "from wattkeeper.live import Session\n"
    code += "with Session('any', batch_sizes=[8], default_batch_size=8, max_epochs=9) as session:\n"
    code += "    for epoch in session.epochs(): session.report(3)\n"
    path = trained(tmp_path, {"some": workload("python", "-c", code)})
    done = run(
        path, "--live", "--set", f"cluster.gpu={gpu}", cwd=tmp_path, WATTKEEPER_DEVICE="none"
    )
    assert ("ran on cpu; " in done.stdout) == said
    assert ("(cluster.gpu)" in done.stdout) == said


def test_latencies_without_profiles_are_refused_with_their_line(tmp_path: Path) -> None:
    path = scenario(
        tmp_path,
        TRAINED | {"latencies": "recorded", "live": {"workloads": {"some": workload("true")}}},
    )
    said = run(path, "--live", cwd=tmp_path, code=2).stderr
    lines = path.read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if text.startswith("latencies:"))
    assert said.startswith(f"{path}:{line}:"), said
    assert_states(said, "latencies", "live")


def test_an_unfinished_run_of_another_scenario_is_kept(tmp_path: Path) -> None:
    path = trained(tmp_path, {"none": workload("python", "-c", "pass")})
    first = run(path, "--live", "--out", "out", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none")
    assert "Goes on" not in first.stderr
    same = run(path, "--live", "--out", "out", cwd=tmp_path, code=2, WATTKEEPER_DEVICE="none")
    assert_states(same.stderr, "Goes on", tmp_path / "out.live")
    again = run(
        path,
        "--live",
        "--out",
        "out",
        "--set",
        "max_attempts=3",
        cwd=tmp_path,
        code=2,
        WATTKEEPER_DEVICE="none",
    )
    assert_states(again.stderr, tmp_path / "out.live", "another scenario")


TOGETHER = """
import os
import torch
from wattkeeper.live import Session

torch.distributed.init_process_group("gloo")
with Session("any", batch_sizes=[8], default_batch_size=8, max_epochs=9, eta=0) as session:
    rank = int(os.environ["RANK"])
    for epoch in session.epochs():
        session.report(epoch.number)
open(f"rank-{rank}", "w").write(str(session.batch_size))
"""


@pytest.mark.slow
def test_torchrun_starts_a_process_per_gpu_and_one_reports(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "together.py").write_text(TOGETHER)
    cluster = TRAINED["cluster"] | {"gpus": 2, "gpus_per_node": 2}
    live = {"runner": "torchrun", "workloads": {"both": workload("python", "together.py")}}
    path = scenario(tmp_path, TRAINED | {"cluster": cluster, "live": live}, gpus=2)
    run(path, "--live", "--out", "live", cwd=tmp_path, WATTKEEPER_DEVICE="none")
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)] == ["8", "8"]
    (attempt,) = rows(tmp_path / "live", "jobs")
    assert (attempt["gpus"], attempt["epochs"], attempt["reached_target"]) == (2, 3, True)
