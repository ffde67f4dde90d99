"""A training script is recorded as a profile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import run_command
from tests.support.messages import assert_states
from tests.support.processes import until
from wattkeeper.live.host.process_identity import start_ticks
from wattkeeper.live.record import sweep
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.kinds.simulation import execute
from wattkeeper.scenarios.run.policy_checks import check_policies
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.traces.library.folder import read
from wattkeeper.traces.trace import Trace

SCRIPT = """\
import os, time
from wattkeeper.live import Session

class Counter:
    done = 0
    def state_dict(self): return self.done
    def load_state_dict(self, state): self.done = state

with open("started", "a") as file:
    file.write(f"{os.getpid()}\\n")
counter = Counter()
with Session("toy", batch_sizes=(8, 16, 32), default_batch_size=16, target=4, max_epochs=8,
             eta=0, samples_per_epoch=64) as session:
    session.keep(counter=counter)
    if session.batch_size == 8:
        raise MemoryError("too much")
    for epoch in session.epochs(range(64 // session.batch_size)):
        for _ in epoch:
            time.sleep(0.004)
        counter.done += 1
        assert counter.done == epoch.number
        session.report(16 * epoch.number / session.batch_size)
        while os.path.exists("waiting") and session.assignment.recurrence == 2:
            open("waits", "w").close()
            time.sleep(0.1)
"""


def environment(folder: Path, device: str) -> dict[str, str]:
    own = {
        "WATTKEEPER_TRACES": "library",
        "WATTKEEPER_DEVICE": device,
        "COLUMNS": "120",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return {**os.environ, **own}


def words(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "wattkeeper.scenarios", *arguments]


def wattkeeper(
    folder: Path, *arguments: str, device: str = "none", code: int = 0
) -> subprocess.CompletedProcess[str]:
    return run_command(
        *arguments, traces=Path("library"), cwd=folder, code=code, WATTKEEPER_DEVICE=device
    )


def started(folder: Path) -> int:
    path = folder / "started"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def recorded_on_device(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a script recorded on a device with power limits, and the command's output."""
    folder = tmp_path_factory.mktemp("on_device")
    (folder / "toy.py").write_text(SCRIPT)
    done = wattkeeper(
        folder,
        "record",
        "--name",
        "toys",
        "--repeats",
        "1",
        "--epochs",
        "2",
        "--power-limits",
        "150,200",
        "toy.py",
        device="synthetic:SYN-250W",
    )
    return folder, done.stdout


@pytest.fixture(scope="module")
def recorded_on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script recorded where nothing measures energy."""
    folder = tmp_path_factory.mktemp("on_cpu")
    (folder / "toy.py").write_text(SCRIPT)
    wattkeeper(
        folder, "record", "--name", "toys", "--repeats", "2", "--batch-sizes", "32", "toy.py"
    )
    return folder


def frames(trace: Trace) -> dict[str, pd.DataFrame]:
    return {name: table.to_pandas() for name, table in trace.tables.items()}


def test_sweep_is_saved_as_a_profile(recorded_on_device: tuple[Path, str]) -> None:
    trace = read(recorded_on_device[0] / "library/toys")
    tables = frames(trace)
    points = tables["profiles"].set_index(["batch_size", "power_limit_w"])
    assert sorted(points.index) == [(16, 150.0), (16, 200.0), (32, 150.0), (32, 200.0)]
    # The synthetic device draws as much as its limit allows.
    assert points["average_power_w"].tolist() == pytest.approx(
        [limit for _, limit in points.index], rel=0.25
    )
    assert (points["time_per_epoch_s"] > 0).all()
    assert set(points["gpu_type"]) == {"SYN-250W"}
    epochs = tables["convergence"].set_index("batch_size")["epochs"]
    assert epochs.to_dict() == {16: 4, 32: 8}
    (workload,) = tables["workloads"].to_dict("records")
    assert workload["workload"] == "toy"
    assert (workload["target"], workload["max_epochs"]) == (4, 8)
    assert (workload["default_batch_size"], workload["samples_per_epoch"]) == (16, 64)
    assert (trace.origin, trace.format) == ("recorded", "record")


def test_trace_describes_how_it_was_recorded(recorded_on_device: tuple[Path, str]) -> None:
    folder, output = recorded_on_device
    trace = read(folder / "library/toys")
    (about,) = trace.parameters["recordings"]
    assert about["energy"] == "synthetic"
    assert about["power_limits"] == "set"
    assert {"host", "date", "platform", "versions", "script"} <= set(about)
    assert len(about["runs"]) == 3 + 2
    (note,) = (note for note in trace.notes if "memory" in note)
    assert_states(note, "toy: ", "batch size 8")
    (latencies,) = trace.parameters["latencies"]
    for name in ("start_s", "stop_s", "report_s", "settle_s", "checkpoint_s", "restore_s"):
        assert latencies[name] > 0
    assert "latencies: recorded" in output
    assert not (folder / "library/.recording/toys").exists()
    described = wattkeeper(folder, "traces", "describe", "toys").stdout
    assert_states(described, "toys: ", "recorded, 4 profiles, 2 convergence, 1 workloads")


SCENARIO = """\
name: again
cluster: {gpu: GPU, gpus: 1, idle_power_w: 20}
workload: {kind: recurring, profiles: library/toys, recurrences: 2}
variants: {default: {}, zeus: {policies: {configure: zeus, tune: zeus-jit}}}
baseline: default
"""


def replay(folder: Path, gpu: str, *settings: str) -> list[Any]:
    (folder / "again.yaml").write_text(
        SCENARIO.replace("GPU", gpu).replace("library", str(folder / "library"))
    )
    loaded = load(str(folder / "again.yaml"), settings)
    inputs = read_inputs(loaded)
    check_policies(loaded, inputs)
    return [execute(spec, inputs.runs[spec.variant.name]) for spec in loaded.runs]


def test_recorded_profile_is_replayed(recorded_on_device: tuple[Path, str]) -> None:
    folder, _ = recorded_on_device
    (latencies,) = read(folder / "library/toys").parameters["latencies"]
    for result in replay(folder, "SYN-250W", "latencies=recorded"):
        rows = result.tables["jobs"].to_pandas()
        assert (rows["energy_j"] > 0).all()
        assert (rows["overhead_s"] > latencies["start_s"]).all()


def test_recording_leaves_limits_alone_if_told(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(SCRIPT)
    run_command(
        "record",
        "--name",
        "toys",
        "--repeats",
        "1",
        "--batch-sizes",
        "16",
        "toy.py",
        traces=Path("library"),
        cwd=tmp_path,
        WATTKEEPER_DEVICE="synthetic:SYN-250W",
        WATTKEEPER_POWER_CONTROL="off",
    )
    trace = read(tmp_path / "library/toys")
    assert list(frames(trace)["profiles"]["power_limit_w"]) == [250.0]
    assert trace.notes[-1].endswith("power control is off: limits stay as they are")
    # The run that is stopped, its resumption, and the training to the target.
    assert started(tmp_path) == 3


def test_unmeasured_energy_is_absent(recorded_on_cpu: Path) -> None:
    trace = read(recorded_on_cpu / "library/toys")
    points = trace.tables["profiles"]
    assert points["average_power_w"].null_count == points["power_limit_w"].null_count == 2
    (note,) = (note for note in trace.notes if "energy" in note)
    assert_states(note, "toy: ", "power is absent")
    described = wattkeeper(recorded_on_cpu, "traces", "describe", "toys").stdout
    assert_states(described, "measured power: ", "toy on cpu")
    report = json.loads(
        wattkeeper(recorded_on_cpu, "traces", "describe", "toys", "--eta", "0", "--json").stdout
    )
    (potential,) = report["potential"]
    assert potential["both"]["energy_j"] is None
    with pytest.raises(InputError, match=r"again.yaml:4:.*eta 0.5.*energy"):
        replay(recorded_on_cpu, "cpu")
    with pytest.raises(InputError, match="power_cap_w"):
        replay(recorded_on_cpu, "cpu", "objective.eta=0", "cluster.power_cap_w=100")
    for result in replay(recorded_on_cpu, "cpu", "objective.eta=0"):
        jobs, line = result.tables["jobs"], result.tables["timeline"]
        for column in (jobs["energy_j"], jobs["power_limit_w"], line["power_w"]):
            assert column.null_count == len(column)
        assert jobs["cost"].to_pylist() == jobs["time_s"].to_pylist()
        assert result.metrics["time_s"] > 0
        assert pd.isna(result.metrics["energy_j"])
        assert pd.isna(result.metrics["cluster_energy_j"])


def test_run_without_energy_is_reported_and_compared(recorded_on_cpu: Path) -> None:
    (recorded_on_cpu / "again.yaml").write_text(SCENARIO.replace("GPU", "cpu"))
    shown = wattkeeper(recorded_on_cpu, "run", "again.yaml", "--set", "objective.eta=0").stdout
    assert "Results:" in shown
    summary = json.loads((recorded_on_cpu / "results/again/summary.json").read_text())
    assert summary["variants"]["zeus"]["metrics"]["energy_j"]["mean"] is None
    both = wattkeeper(recorded_on_cpu, "compare", "results/again", "results/again").stdout
    assert "not compared, without values" in both


def test_workload_is_replaced_only_with_the_option(recorded_on_cpu: Path) -> None:
    again = ("record", "--name", "toys", "--repeats", "1", "--batch-sizes", "16", "toy.py")
    refused = wattkeeper(recorded_on_cpu, *again, code=2)
    assert_states(refused.stderr, "toys", "'toy' on 1 x cpu", "--replace")
    wattkeeper(recorded_on_cpu, "traces", "generate", "profiles", "--name", "other")
    other = ("record", "--name", "other", "toy.py")
    message = wattkeeper(recorded_on_cpu, *other, code=2).stderr
    assert_states(message, "other", "not a recorded one")


@pytest.mark.parametrize(
    ("script", "arguments", "code", "message"),
    [
        (None, (), 2, "no training script 'toy.py'"),
        ("print('hello')", (), 2, "toy.py.*without a Session"),
        ("import sys; sys.exit('broken data')", (), 2, "exit code 1; .*broken data"),
        (SCRIPT.replace("target=4, ", ""), (), 2, "toy.py.* no target"),
        (SCRIPT, ("--power-limits", "200"), 3, "no power limit"),
        (SCRIPT, ("--batch-sizes", "0,2"), 2, "--batch-sizes.*'0,2'.*> 0"),
    ],
)
def test_scripts_that_cannot_be_recorded_are_refused(
    tmp_path: Path, script: str | None, arguments: tuple[str, ...], code: int, message: str
) -> None:
    if script is not None:
        (tmp_path / "toy.py").write_text(script)
    done = wattkeeper(tmp_path, "record", "--name", "toys", *arguments, "toy.py", code=code)
    assert re.search(message, done.stderr, re.DOTALL), done.stderr
    assert not (tmp_path / "library/toys").exists()


HANGING = """\
import os, subprocess, sys, time
from wattkeeper.live import Session

child = subprocess.Popen(["sleep", "600"])
with open("children", "a") as file:
    file.write(f"{child.pid}\\n")
print("it waits for its data", flush=True)
if HOW == "before":
    time.sleep(600)
with Session("toy", batch_sizes=(16,), default_batch_size=16, target=4, max_epochs=8, eta=0,
             lease_s=1) as session:
    for epoch in session.epochs(range(4)):
        for step in epoch:
            if HOW == "within" and epoch.number == 2 and step:
                time.sleep(600)
        time.sleep(0.1)
        session.report(epoch.number)
if HOW == "after":
    time.sleep(600)
child.kill()
"""


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ("before", "default batch size|no Session| 2 s"),
        pytest.param("within", "batch size 16|hung| 2 s|epoch 1", marks=pytest.mark.slow),
        pytest.param("after", "batch size 16|not ended| 2 s|Session", marks=pytest.mark.slow),
    ],
)
def test_hanging_script_is_killed(tmp_path: Path, how: str, facts: str) -> None:
    (tmp_path / "toy.py").write_text(f"HOW = {how!r}\n{HANGING}")
    done = wattkeeper(tmp_path, "record", "--name", "toys", "--lease", "2", "toy.py", code=2)
    assert_states(done.stderr, "toy.py, ", *facts.split("|"), "--lease")
    (log,) = re.findall(r" log is (\S+);", done.stderr)
    assert "\n  it waits for its data" in done.stderr, "the last line of its log"
    assert (tmp_path / log).read_text() == "it waits for its data\n"
    for child in (tmp_path / "children").read_text().split():
        assert not start_ticks(int(child)), "its child processes are killed, too"


DISTRIBUTED = """\
import os, time, torch.distributed as dist
from wattkeeper.live import Session

class Counter:
    done = 0
    def state_dict(self): return {"done": self.done}
    def load_state_dict(self, state): self.done = state["done"]

dist.init_process_group("gloo")
counter = Counter()
with Session("both", batch_sizes=(8, 16, 32), default_batch_size=16, target=3, max_epochs=8,
             eta=0) as session:
    session.keep(counter=counter)
    for epoch in session.epochs(range(64 // session.batch_size)):
        for _ in epoch:
            time.sleep(0.004)
        counter.done += 1
        assert counter.done == epoch.number
        session.report(epoch.number if dist.get_rank() == 0 else 0)
with open(f"rank-{dist.get_rank()}", "a") as file:
    file.write(f"{session.batch_size} {session.outcome.cause} {session.outcome.epochs}\\n")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_training_on_several_gpus_is_recorded_with_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "both.py").write_text(DISTRIBUTED)
    options = ("--repeats", "1", "--batch-sizes", "32", "--torchrun", "2")
    command = ("record", "--name", "toys", *options)
    wattkeeper(tmp_path, *command, "both.py")
    trace = read(tmp_path / "library/toys")
    points = trace.tables["profiles"].to_pylist()
    assert [(row["batch_size"], row["gpus"], row["gpu_type"]) for row in points] == [
        (16, 2, "cpu"),
        (32, 2, "cpu"),
    ]
    assert {row["epochs"] for row in trace.tables["convergence"].to_pylist()} == {3}
    (latencies,) = trace.parameters["latencies"]
    assert latencies["checkpoint_s"] > 0
    assert latencies["restore_s"] > 0
    ranks = [(tmp_path / f"rank-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert ranks[0] == ranks[1]
    assert ranks[0] == ["16 stopped 1", "16 epochs 2", "16 reached 3", "32 reached 3"]
    refused = wattkeeper(
        tmp_path, *command, "--replace", "both.py", device="synthetic:SYN-250W", code=2
    )
    assert_states(refused.stderr, "2 processes", "--torchrun", "1 GPUs")


def test_damaged_runs_are_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path, "none").items():
        monkeypatch.setenv(name, value)
    Path("toy.py").write_text(SCRIPT)
    plan = sweep.RecordingPlan("toy.py", batch_sizes=(16,), repeats=1)

    def record() -> int:
        """Number of runs of the script."""
        before = started(tmp_path)
        recording = sweep.record(plan, tmp_path / "runs", lambda begun: None)
        assert [run.ended["cause"] for run in recording.full] == ["reached"]
        assert [run.request.epochs_done for run in recording.stopped] == [0, 1]
        return started(tmp_path) - before

    assert record() == 3
    assert record() == 0
    stored = sorted((tmp_path / "runs").glob("*/run-*.json"))
    content = stored[0].read_bytes()
    changed = json.loads(content)
    changed["exited_s"] += 1
    damaged = [b"", b"{", b"\xff\n", b"[" * 100_000, content[:-9], json.dumps(changed).encode()]
    for data in damaged:
        stored[0].write_bytes(data)
        assert record() == 1, data[:100]
    stored[0].write_bytes(stored[1].read_bytes())
    assert record() == 1
    assert record() == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_sweep_resumes(tmp_path: Path, number: int) -> None:
    command = ("record", "--name", "toys", "--repeats", "2", "--batch-sizes", "32", "toy.py")
    waiting = tmp_path / "waiting"
    (tmp_path / "toy.py").write_text(SCRIPT)
    waiting.touch()
    process = subprocess.Popen(
        words(*command),
        cwd=tmp_path,
        text=True,
        env=environment(tmp_path, "none"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(lambda: (tmp_path / "waits").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    waiting.unlink()
    _, error = process.communicate(timeout=120)
    assert process.returncode == (130 if number == signal.SIGTERM else -number)
    assert "Traceback" not in error
    before = started(tmp_path)

    def resumed() -> bool:
        done = subprocess.run(
            words(*command),
            cwd=tmp_path,
            env=environment(tmp_path, "none"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode or "being recorded already" in done.stderr, done.stderr
        return not done.returncode

    until(resumed)
    # Of 4 trainings to the target and 2 stops, what was finished before is not done again.
    assert started(tmp_path) - before <= 5
    assert len(frames(read(tmp_path / "library/toys"))["convergence"]) == 4


@pytest.mark.slow
def test_live_runs_of_the_examples_match_their_recorded_profiles(tmp_path: Path) -> None:
    recorded = ("record", "--name", "here", "--repeats", "1", "--batch-sizes")
    wattkeeper(tmp_path, *recorded, "128", "wattkeeper.live.examples.cnn")
    wattkeeper(tmp_path, *recorded, "64", "wattkeeper.live.examples.transformer")
    smoke = wattkeeper(tmp_path, "scenarios", "live-smoke").stdout
    text = "".join(line for line in smoke.splitlines(True) if not line.startswith("  zeus:"))
    (tmp_path / "smoke.yaml").write_text(text.replace("recurrences: 3", "recurrences: 1"))
    wattkeeper(tmp_path, "run", "smoke.yaml", "--live", "--out", "live")
    wattkeeper(
        tmp_path,
        "run",
        "smoke.yaml",
        "--set",
        "workload.profiles=here",
        "--set",
        "latencies=recorded",
        "--out",
        "sim",
    )
    comparison = json.loads(wattkeeper(tmp_path, "compare", "live", "sim", "--json").stdout)
    assert comparison["measured"]["backend"] == "live"
    assert comparison["decisions"] == {"compared": 2, "differ": [], "retuned": 0}
    assert comparison["absent"] == {"measured": 2, "predicted": 2}
    for row in comparison["attempts"]:
        assert row["time_s"]["measured"] > 0
        # A training of the same seed takes as many epochs as it was recorded with.
        assert row["epochs"]["measured"] == row["epochs"]["predicted"]
