"""The command, in processes of its own: what it leaves behind, and how it fails."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from tests.conftest import Command
from tests.support.messages import assert_states, drop_signs_of_life
from tests.support.runs import FILES, SMALL, content, names, seeds_of
from wattkeeper.scenarios.cli.main import main
from wattkeeper.scenarios.run.run import run
from wattkeeper.scenarios.spec.loading import load


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "3..1", "1..", "..3", "1.5", "1,2", "9" * 20])
def test_bad_seeds(text: str, tmp_path: Path) -> None:
    arguments = ["run", "quickstart", "--out", str(tmp_path / "out"), "--seeds", text]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert_states(done.stderr, "--seeds", repr(text), "1 to N", "A..B")
    assert not (tmp_path / "out").exists()


def test_bad_arguments_of_run_are_refused(
    command: Command, inside: Command, tmp_path: Path
) -> None:
    assert_states(command("run", "nope", code=2).stderr, "'nope'", "quickstart, scheduler-pool")
    assert_states(inside("run", "quickstart", "--seeds", "0", code=2).stderr, "--seeds", "'0'")
    assert_states(inside("run", "quickstart", "--workers", "0", code=2).stderr, "--workers", "0")
    assert_states(inside("run", code=2).stderr, "argument 'SCENARIO'")
    assert names(tmp_path) == []


# Output


def test_json_is_the_summary(inside: Command, tmp_path: Path) -> None:
    done = inside("run", "quickstart", "--seeds", "2", "--json", "--out", "deep/er/out")
    assert done.stdout == (tmp_path / "deep/er/out/summary.json").read_text(encoding="utf-8")
    assert drop_signs_of_life(done.stderr) == ""
    assert names(tmp_path / "deep/er/out") == FILES


def test_a_scenario_of_ones_own(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    done = inside("run", "small.yaml", "--json")
    assert names(tmp_path / "results") == ["small"]
    summary = (tmp_path / "results/small/summary.json").read_text(encoding="utf-8")
    assert json.loads(done.stdout) == json.loads(summary)
    assert list(json.loads(summary)["variants"]) == ["default", "é"]
    assert done.stdout == summary


def test_progress_names_the_run_at_work(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    seen: list[tuple[int, int, str]] = []
    run(load(str(path), seeds=[1, 2]), progress=lambda *told: seen.append(told))
    at_work = ["default, seed 1", "default, seed 2", "é, seed 1", "é, seed 2", ""]
    assert seen == [(done, 4, named) for done, named in enumerate(at_work)]


def test_an_output_folder_with_other_things(inside: Command, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("dear")
    done = inside("run", "quickstart", "--out", "other", code=2)
    assert done.stderr.startswith("other ")
    assert_states(done.stderr, "wattkeeper", "--out")
    assert content(other) == {"thesis.tex": b"dear"}
    done = inside("run", "quickstart", "--out", "other/thesis.tex", code=2)
    assert "thesis.tex" in done.stderr
    assert content(other) == {"thesis.tex": b"dear"}
    assert names(tmp_path) == ["other"]


def test_a_manifest_of_something_else_is_not_replaced(inside: Command, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "manifest.json").write_text('{"name": "a web site"}')
    (site / "index.html").write_text("hello")
    before = content(site)
    done = inside("run", "quickstart", "--seeds", "1", "--out", "site", code=2)
    assert content(site) == before
    assert "site" in done.stderr


FOREIGN = {
    "a page": {"report.html": "<html>mine</html>"},
    "a manifest": {"manifest.json": '{"name": "a web site"}'},
    "no JSON": {"manifest.json": "mine", "summary.json": "{}"},
    "only known names": {"jobs.parquet": "PAR1", "summary.json": "{}", "timeline.json.gz": "x"},
    "points": {"points/0001/report.html": "mine"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("sweep", [(), ("--sweep", "workload.recurrences=2")], ids=["run", "sweep"])
def test_files_of_something_else_are_not_replaced(
    files: dict[str, str], sweep: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    """They have the names of results."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    for name, text in files.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    done = inside("run", "small.yaml", *sweep, "--out", "site", code=2)
    assert_states(done.stderr, "site", next(iter(files)).split("/")[0], "--out")
    for name, text in files.items():
        assert (tmp_path / "site" / name).read_text() == text


def test_another_page_or_folder_among_results_is_not_replaced(
    inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    inside("run", "small.yaml", "--out", "out")
    (tmp_path / "out/report.html").write_text("mine")
    assert "'report.html'" in inside("run", "small.yaml", "--out", "out", code=2).stderr
    assert (tmp_path / "out/report.html").read_text() == "mine"
    sweep = ("run", "small.yaml", "--sweep", "workload.recurrences=2,3", "--out", "sweep")
    inside(*sweep)
    inside(*sweep)
    (tmp_path / "sweep/points/0001/notes").mkdir()
    assert "'points/0001/notes'" in inside(*sweep, code=2).stderr


@pytest.mark.parametrize("sweep", [(), ("--sweep", "workload.recurrences=2")], ids=["run", "sweep"])
@pytest.mark.parametrize("folder", ["/", "/proc/results", "out/" + "x" * 250])
def test_a_place_where_no_folder_can_be_made_is_refused_before_anything_runs(
    folder: str, sweep: tuple[str, ...], inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    code = 2 if folder == "/" else 3
    done = inside("run", "small.yaml", *sweep, "--out", folder, code=code)
    assert_states(done.stderr, folder[-40:])
    assert names(tmp_path) == ["small.yaml"]


def test_what_was_added_to_older_results_is_not_lost(inside: Command, tmp_path: Path) -> None:
    inside("run", "quickstart", "--seeds", "1", "--out", "out")
    (tmp_path / "out/notes.txt").write_text("what I found")
    done = inside("run", "quickstart", "--seeds", "1", "--out", "out", code=2)
    assert "out" in done.stderr
    assert (tmp_path / "out/notes.txt").read_text() == "what I found"


def test_older_results_are_replaced(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    inside("run", "quickstart", "--seeds", "2", "--out", "out")
    (tmp_path / "out/.report.html.0123456789ab.new").touch()  # as a killed command leaves it
    inside("run", "quickstart", "--seeds", "1", "--out", "out")
    assert seeds_of(tmp_path / "out") == ([1], [1])
    assert names(tmp_path / "out") == FILES
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("reader", ["report", "compare", "timeline", "run"])
def test_results_hidden_by_a_kill_between_two_renames_come_back(
    reader: str, inside: Command, tmp_path: Path
) -> None:
    """As they are where a file system cannot exchange two names."""
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    for seeds, state in (("2", "old"), ("1", "new")):
        inside("run", "small.yaml", "--seeds", seeds, "--out", state)
        (tmp_path / state).rename(tmp_path / f".out.0123456789ab.{state}")
    if reader == "run":
        assert "'nope'" in inside("run", "small.yaml", "--set", "nope=1", code=2).stderr
        inside("run", "small.yaml", "--seeds", "1", "--out", "out")
    else:
        inside(reader, "out", *["out"][: reader == "compare"])
    assert seeds_of(tmp_path / "out") == ([1], [1])
    assert names(tmp_path) == ["out", "small.yaml"]


def test_a_failing_run_keeps_older_results(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    inside("run", "small.yaml", "--out", "out")
    before = content(tmp_path / "out")
    inside("run", "small.yaml", "--out", "out", "--set", "variants.é.policies.tune=zeus", code=2)
    batch = "variants.é.policies.configure.batch_size=777"
    inside("run", "small.yaml", "--out", "out", "--set", batch, code=2)
    assert content(tmp_path / "out") == before
    assert names(tmp_path) == ["out", "small.yaml"]


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    arguments = ("run", "quickstart", "--seeds", "1", "--out", "file/deep")
    done = run_command_any(*arguments, cwd=tmp_path, codes={2, 3})
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr
    assert content(tmp_path) == {"file": b"kept"}


def run_command_any(
    *arguments: str, cwd: Path, codes: set[int]
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "wattkeeper.scenarios", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode in codes, done.stdout + done.stderr
    return done


def test_results_in_the_working_directory(tmp_path: Path) -> None:
    """It is empty, so it may hold results; or it is refused before anything runs."""
    done = run_command_any(
        "run", "quickstart", "--seeds", "1", "--out", ".", cwd=tmp_path, codes={0, 2}
    )
    assert names(tmp_path) == (FILES if done.returncode == 0 else [])


# Failing and interrupted runs


def test_a_batch_size_without_profile(inside: Command, tmp_path: Path) -> None:
    text = SMALL.replace("batch_size: 64", "batch_size: 777")
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    done = inside("run", "small.yaml", code=2)
    assert done.stderr.startswith("small.yaml:12:")
    assert_states(done.stderr, "variant 'é'", 777, "16, 32, 64, 128, 256, 512, 1024, 2048")
    assert done.stdout == ""
    assert names(tmp_path) == ["small.yaml"]
    same = inside("run", "small.yaml", "--workers", "2", code=2)
    assert drop_signs_of_life(same.stderr) == done.stderr
    settings = ("policies.configure.kind=fixed", "policies.configure.batch_size=777")
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = inside("run", "quickstart", *arguments, code=2)
    assert done.stderr.startswith("--set policies.configure.")
    assert_states(done.stderr, "variant 'default'", 777)
    assert names(tmp_path) == ["small.yaml"]


def test_a_power_limit_without_profile(inside: Command, tmp_path: Path) -> None:
    limit = "policies.tune={kind: fixed-power, power_limit_w: 111}"
    done = inside("run", "quickstart", "--set", limit, code=2)
    assert_states(done.stderr, "111 W", "100, 125, 150, 175, 200, 225, 250 W")
    assert names(tmp_path) == []


@pytest.mark.parametrize("setting", ["cluster.idle_power_w=1e300", "seeds=[99999999999999999999]"])
def test_numbers_too_large_to_run(inside: Command, tmp_path: Path, setting: str) -> None:
    done = inside("run", "quickstart", "--set", setting, "--out", "out", code=2)
    assert setting in done.stderr
    assert names(tmp_path) == []


LONG_RUN = (sys.executable, "-m", "wattkeeper.scenarios", "run", "quickstart", "--seeds", "5000")


@contextmanager
def running(cwd: Path, workers: str, shown: bytes) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A long run in a process group of its own, on a terminal, once it shows a pattern."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*LONG_RUN, "--workers", workers, "--out", "out"],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    try:
        read_until(ours, shown)
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, if they are still there
        os.close(ours)


def read_until(terminal: int, pattern: bytes | None) -> bytes:
    """What a terminal shows, up to a pattern, or to its end when no process holds it any more."""
    shown = b""
    while True:
        ready, _, _ = select.select([terminal], [], [], LIVENESS_S)
        assert ready, f"still there and silent, after {shown[-500:]!r}"
        try:
            part = os.read(terminal, 65536)
        except OSError:  # all of its processes have ended
            part = b""
        shown += part
        if not part or (pattern is not None and re.search(pattern, shown)):
            assert pattern is None or part, shown.decode(errors="replace")
            return shown


LIVENESS_S = 20.0
"""How long a process may show nothing before a test gives it up."""

STARTED = rb"0/20000"
UNDER_WAY = rb"\b[1-9]\d*/20000"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted(tmp_path: Path, workers: str) -> None:
    with running(tmp_path, workers, UNDER_WAY) as (process, terminal):
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all of them
        rest = read_until(terminal, None).decode()
        assert process.wait() == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert names(tmp_path) == []


@pytest.mark.slow
def test_interrupted_while_workers_start(tmp_path: Path) -> None:
    with running(tmp_path, "2", STARTED) as (process, terminal):
        os.killpg(process.pid, signal.SIGINT)
        rest = read_until(terminal, None).decode()
        assert process.wait() == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert names(tmp_path) == []


def test_terminated_with_its_workers(tmp_path: Path) -> None:
    """A service manager or a batch system signals the command alone."""
    with running(tmp_path, "2", UNDER_WAY) as (process, terminal):
        process.terminate()
        assert process.wait() != 0
        read_until(terminal, None)
    assert names(tmp_path) == []


# The shipped scenarios that replay recorded traces


def test_zeus_overlap(zeus: Command, tmp_path: Path) -> None:
    done = zeus("run", "zeus-overlap", "--set", "workload.trace=groups", "--out", "out")
    assert "jobs groups: modelled" in done.stdout
    assert "profiles zeus-nsdi23: recorded" in done.stdout
    assert "made up by a model" not in done.stdout
    summary = json.loads((tmp_path / "out/summary.json").read_text())["variants"]
    baselines = {name: variant["versus"]["baseline"] for name, variant in summary.items()}
    assert baselines == {
        "default": "default",
        "zeus": "default",
        "default-simulated": "default-simulated",
        "zeus-simulated": "default-simulated",
    }
    jobs = pd.read_parquet(tmp_path / "out/jobs.parquet")
    energy = jobs.groupby("variant")["energy_j"].sum()
    for name, baseline in baselines.items():
        ratio = summary[name]["versus"]["energy_j"]["ratio"]
        assert ratio == pytest.approx(energy[name] / energy[baseline], rel=1e-9)
    recorded = jobs[jobs["variant"] == "default"]
    assert (recorded["start_time_s"] == recorded["submit_time_s"]).all()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert {trace["trace"]: bool(trace["sha256"]) for trace in manifest["inputs"]} == {
        "zeus-nsdi23": True,
        "groups": True,
    }


def test_costs_under_different_etas_are_not_compared(zeus: Command, tmp_path: Path) -> None:
    done = zeus("run", "zeus-eta", "--out", "out")
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    parts = [summary["variants"], *summary["by"]["workload"].values()]
    none = {"ratio": None, "ci95": None, "effect": None, "verdict": None}
    assert len(parts) == 7
    for part in parts:
        assert len(part) == 6
        for name, variant in part.items():
            same = name in ("default", "eta-0.50")
            for metric in ("cost", "regret", "last5_cost"):
                compared = variant["versus"][metric] != none
                assert compared == same, f"{name} {metric}"
            assert variant["versus"]["energy_j"]["ratio"] > 0
            assert variant["versus"]["time_s"]["ratio"] > 0
    table = done.stdout.partition("\nVariants\n")[2]
    eta = next(line for line in table.splitlines() if line.startswith("│ eta-0.25 "))
    cells = [cell.strip() for cell in eta.split("│")[1:-1]]
    assert "%" in cells[1]
    assert "%" in cells[2]
    assert "%" not in cells[3], "the cost is shown against one under another eta"
