"""Text of others on the terminal: control characters are shown as escapes, markup as it is."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from tests.conftest import Command, run_command, small
from tests.scenarios.zoo.test_zoo_command import ABOUT, graph
from tests.support.live_runs import command as words
from tests.support.live_runs import environment
from wattkeeper.policies.errors import InputError

EVIL = "\x1b]0;owned\x07\x9b31m\x1b[31m\u202e"
"""Sets the title of a terminal, its colour (in 7 and 8 bits) and the direction of the text."""

SHOWN = r"\u001b]0;owned\u0007\u009b31m\u001b[31m\u202e"

CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

MARKED = ("[/bold]x", "[red]y", ":smile:[link=/x]z")
"""Names that are markup of rich."""

HEAD = "job_id,user,queue,gpu_type,submit_time_s,duration_s,gpus\n"


def shows(done: subprocess.CompletedProcess[str], *facts: str) -> None:
    """Check that an output states facts, without any control character."""
    output = done.stdout + done.stderr
    assert not CONTROLS.findall(output)
    folded = re.sub(r"\s+", "", output)
    for fact in facts:
        assert re.sub(r"\s+", "", fact) in folded, output


def write_jobs(folder: Path) -> Path:
    """Jobs whose every text is hostile."""
    path = folder / "jobs.csv"
    rows = "".join(
        f'"{n}{EVIL}","{EVIL}u","{EVIL}q","{EVIL}g",{n},60,{64 if n == 2 else 1}\n' for n in (1, 2)
    )
    path.write_text(HEAD + rows, newline="")
    return path


def scenario(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(json.dumps(yaml.safe_load(small()) | changes))
    return path


def test_errors(inside: Command, tmp_path: Path) -> None:
    for arguments in (
        ("report", EVIL),
        ("compare", EVIL, EVIL),
        ("traces", "describe", EVIL),
        ("traces", "import", "csv", EVIL),
        ("validate", "quickstart", "--set", f"{EVIL}.x.y=1"),
        ("run", EVIL),
        (EVIL,),
        ("traces", EVIL),
        ("run", "quickstart", f"--{EVIL}"),
        ("run", "quickstart", EVIL),
        ("zoo", "list", "--zoo", EVIL),
    ):
        shows(inside(*arguments, code=2), "owned")
    assert "\x1b" not in str(InputError(f"found {EVIL}", EVIL))


def test_bytes_of_arguments_that_are_no_text(tmp_path: Path) -> None:
    done = run_command(
        "zoo", "list", "--zoo", os.fsdecode(b"\xff"), traces=tmp_path, cwd=tmp_path, code=2
    )
    shows(done, r"\udcff")


def test_traces(inside: Command, tmp_path: Path) -> None:
    path = write_jobs(tmp_path)
    shows(inside("traces", "import", "csv", path, "--name", "jobs"))
    shows(inside("traces", "describe", "jobs"), SHOWN)
    workload = {"kind": "trace", "trace": "jobs", "unusable": "drop", "gpu_types": "ignore"}
    cluster = {"gpu": f"{EVIL}g", "gpus": 2, "idle_power_w": 40, "busy_power_w": 50}
    jobs = {"workload": workload, "cluster": cluster, "variants": {"default": {}, "other": {}}}
    study = scenario(tmp_path, **jobs, question=f"{EVIL}?")
    for arguments in ("validate", study), ("run", study, "--out", "out"):
        shows(inside(*arguments))
    study = scenario(tmp_path, **jobs | {"workload": workload | {"unusable": "refuse"}})
    shows(inside("run", study, code=2), SHOWN)


def test_questions_and_paths(inside: Command, tmp_path: Path) -> None:
    out = tmp_path / f"o{EVIL}"
    shows(inside("run", scenario(tmp_path, question=f"{EVIL}?"), "--out", out), SHOWN)
    shows(inside("report", out), SHOWN)
    shows(inside("timeline", out), SHOWN)
    shutil.copytree(out, tmp_path / "other")
    shows(inside("compare", out, "other"), SHOWN)
    compared = inside("compare", out, "other", "--json")
    shows(compared)
    assert json.loads(compared.stdout)["reference"]["folder"] == str(out)
    page = (out / "report.html").read_text(encoding="utf-8")
    body = page[page.index("<body") : page.index("<script")]
    assert not CONTROLS.findall(body)
    assert SHOWN in body


@pytest.mark.parametrize("marked", MARKED)
def test_markup_in_names_of_variants(inside: Command, tmp_path: Path, marked: str) -> None:
    variants: dict[str, object] = {marked: {}, f"{marked}[/]": {"policies": {"configure": "zeus"}}}
    study = scenario(tmp_path, variants=variants, baseline=marked, question=marked)
    shows(inside("run", study, "--seeds", "2", "--out", "out"), *variants, f"against {marked}")
    shows(inside("run", study, "--seeds", "2", "--out", "b", "--set", "objective.eta=1"))
    shows(inside("compare", "out", "b"), *variants)
    shows(inside("report", "out"))
    shows(inside("timeline", "out", "--variant", marked), marked)
    sweep = ("--sweep", "objective.eta=0,1")
    shows(inside("run", study, "--out", "sweep", *sweep), *variants, f"against {marked}")


def test_models_of_a_zoo(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(graph(4, 2).to_json())
    save_file({"0.weight": np.ones((2, 4), "float32")}, tmp_path / "n.safetensors")
    model = ("--graph", "net.json", "--weights", "n.safetensors", *ABOUT)
    inside("zoo", "add", "--zoo", "zoo", *model, "--name", MARKED[0])
    shows(inside("zoo", "list", "--zoo", "zoo"), MARKED[0])
    match = ("zoo", "match", "--zoo", "zoo", "--child", "net.json", "--matcher", "coverage")
    shows(inside(*match), MARKED[0])
    (tmp_path / "zoo").rename(tmp_path / EVIL)
    shows(inside("zoo", "list", "--zoo", EVIL), SHOWN)


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_of_live_runs(tmp_path: Path, terminal: bool) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_time_s,duration_s,gpus,workload\n"
        f'"{EVIL}a",0,60,1,image\n"[/bold]b",1,60,1,image\n',
        newline="",
    )
    run_command(
        "traces", "import", "csv", path, "--name", "jobs", traces=tmp_path / "library", cwd=tmp_path
    )
    workload = {"kind": "trace", "trace": "jobs", "profiles": {"synthetic": {}}}
    variants: dict[str, object] = {MARKED[0]: {}}
    study = scenario(
        tmp_path, workload=workload, variants=variants, baseline=MARKED[0], live={"speed": 1e7}
    )
    ours, theirs = pty.openpty() if terminal else (-1, subprocess.PIPE)
    process = subprocess.Popen(
        words("run", study, "--live", "--out", "out"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(tmp_path, TERM="xterm-256color"),
        text=not terminal,
    )
    if not terminal:
        output = "".join(process.communicate()) + str(study)
        assert f"{SHOWN}a, attempt 1" in output
        assert not CONTROLS.findall(output)
    else:
        os.close(theirs)
        seen = b""
        while chunk := read(ours):
            seen += chunk
        process.communicate()
        assert b"[/bold]b, attempt" in seen
        assert SHOWN.encode() in seen
        assert b"\x1b]0;" not in seen
        assert b"\xc2\x9b" not in seen
        assert b"\x1b[31m" not in seen
    assert process.returncode == 0


def read(terminal: int) -> bytes:
    """What a pseudo-terminal shows next; empty at its end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
