"""Folders that were altered: a command refuses them, or says what it says of the good ones."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from tests.conftest import small
from tests.support import damage
from wattkeeper.policies.matching.alignment import align
from wattkeeper.policies.matching.asbuilt import asbuilt
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.relation import coverage
from wattkeeper.scenarios.cli.main import main

CODES = (0, 1, 2, 3, 130)

LONGEST_CPU_S = 30
"""What any command may take."""
LONGEST_S = 120
"""The same where it waits: machines that run tests are loaded."""

SWEEP = "objective.eta=0.2,0.8"

LIVE = """\
name: rehearsed
cluster: {gpu: SYN-250W, gpus: 2, gpus_per_node: 1, idle_power_w: 40}
workload:
  kind: recurring
  profiles: {synthetic: {}}
  workloads: [image]
  recurrences: 2
live: {speed: 1.0e+7, lease_s: 60}
variants: {zeus: {policies: {configure: zeus, tune: zeus-jit}}}
baseline: zeus
"""

TRACE = """\
name: of-a-trace
cluster: {gpu: V100, gpus: 64, gpus_per_node: 8, idle_power_w: 40, busy_power_w: 200}
workload: {kind: trace, trace: few, gpu_types: ignore, unusable: drop}
variants: {default: {}}
baseline: default
"""

OUT = "written"
"""File that commands write to."""


class Target(NamedTuple):
    """A folder that is altered, and the commands that read it."""

    folder: str
    commands: tuple[tuple[str, ...], ...]


TARGETS = {
    "run": Target(
        "run",
        (
            ("report", "run", "--out", OUT),
            ("timeline", "run", "--out", OUT),
            ("compare", "run", "good/run", "--json"),
            ("compare", "good/run", "run"),
            ("compare", "good/live", "run", "--json"),
        ),
    ),
    "live": Target(
        "live",
        (
            ("report", "live", "--out", OUT),
            ("timeline", "live", "--out", OUT),
            ("compare", "live", "good/run"),
        ),
    ),
    "sweep": Target(
        "swept",
        (
            ("report", "swept", "--out", OUT),
            ("compare", "swept", "good/swept", "--json"),
            ("timeline", "swept/points/0001", "--out", OUT),
        ),
    ),
    "traces": Target(
        "library",
        (
            ("traces", "list"),
            ("traces", "list", "--json"),
            ("traces", "describe", "few"),
            ("traces", "describe", "power", "--json"),
            ("validate", "of-a-trace.yaml"),
        ),
    ),
    "zoo": Target(
        "zoo",
        (
            ("zoo", "list", "--zoo", "zoo"),
            ("zoo", "list", "--zoo", "zoo", "--json"),
            ("zoo", "match", "--zoo", "zoo", "--child", "child.json", "--json", "--task", "images"),
            ("zoo", "gc", "--zoo", "zoo"),
        ),
    ),
    "bench": Target("baselines", (("bench", "--baselines", "baselines/few.json", "--json"),)),
}


class Answer(NamedTuple):
    """What a command did: exit code, output, error output, and the file that it wrote."""

    code: int
    out: str
    err: str
    written: bytes


class Hung(BaseException):
    """A command takes too long."""


@cache
def compile_matching() -> None:
    """Let numba compile what compares models, for this process and those after it."""
    graph = Graph("net", (Node("linear", (-1,), (Tensor("weight", "weight", (2, 2)),)),))
    align(graph, graph)
    coverage(graph, graph)
    asbuilt(graph, graph)


@contextmanager
def limited() -> Iterator[None]:
    """Raises `Hung` in what computes, or waits, for too long."""

    def end(_number: int, _frame: object) -> None:
        raise Hung

    compile_matching()
    clocks = (
        (signal.SIGPROF, signal.ITIMER_PROF, LONGEST_CPU_S),
        (signal.SIGALRM, signal.ITIMER_REAL, LONGEST_S),
    )
    before = [signal.signal(number, end) for number, _, _ in clocks]
    try:
        for _, clock, limit in clocks:
            signal.setitimer(clock, limit)
        yield
    finally:
        for _, clock, _ in clocks:
            signal.setitimer(clock, 0)
        for (number, _, _), handler in zip(clocks, before, strict=True):
            signal.signal(number, handler)


def limit_cpu() -> None:
    """In a process that is about to be a command."""
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_CPU_S, LONGEST_CPU_S))


def ask(command: tuple[str, ...], *, process: bool = False) -> Answer:
    """Run a command in this process or in one of its own."""
    Path(OUT).unlink(missing_ok=True)
    if process:
        compile_matching()
        done = subprocess.run(
            [sys.executable, "-m", "wattkeeper.scenarios", *command],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            preexec_fn=limit_cpu,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        with limited():
            result = CliRunner().invoke(main, list(command))
        code, out, err = result.exit_code, result.stdout, result.stderr
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            err += "".join(traceback.format_exception(error))
    return Answer(code, out, err, Path(OUT).read_bytes() if Path(OUT).exists() else b"")


def fault(answer: Answer, good: Answer, name: str) -> str:
    """What is wrong with an answer about an altered folder; empty if nothing is.

    Baselines are to be written by hand.
    """
    if "Traceback" in answer.err:
        return "traceback"
    if answer.code not in CODES:
        return f"exit code {answer.code}"
    if answer.code == 0 and name != "bench" and answer[1::2] != good[1::2]:
        return "wrong success"
    if answer.code and not (answer.err + answer.out).strip():
        return "no message"
    if len(answer.err) > 5000:
        return "long message"
    return ""


def save_model(folder: Path, name: str, *widths: int) -> tuple[str, ...]:
    pairs = enumerate(pairwise(widths))
    nodes = tuple(
        Node("linear", (n - 1,), (Tensor(f"{n}.weight", "weight", (after, before)),))
        for n, (before, after) in pairs
    )
    (folder / f"{name}.json").write_text(Graph("mlp", nodes).to_json())
    values = {
        tensor.name: np.ones(tensor.shape, "f4") * len(widths)
        for node in nodes
        for tensor in node.tensors
    }
    save_file(values, folder / f"{name}.safetensors")
    return ("--graph", f"{name}.json", "--weights", f"{name}.safetensors")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with good results, traces and zoos below `good`."""
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WATTKEEPER_TRACES", str(folder / "library"))
        patch.setenv("WATTKEEPER_STATE", str(folder / "state"))
        patch.setenv("COLUMNS", "120")
        for name, text in (("small", small()), ("of-a-trace", TRACE), ("rehearsed", LIVE)):
            (folder / f"{name}.yaml").write_text(text)
        options = ("--task", "images", "--dataset", "digits", "--accuracy", "0.9")
        steps = [
            ("run", "small.yaml", "--out", "good/run", "--seeds", "2"),
            ("run", "small.yaml", "--out", "good/swept", "--sweep", SWEEP),
            ("run", "rehearsed.yaml", "--live", "--out", "good/live"),
            ("traces", "generate", "jobs", "--name", "few", "--jobs", "40"),
            ("traces", "generate", "profiles", "--name", "power"),
            *(
                (
                    "zoo",
                    "add",
                    "--zoo",
                    "good/zoo",
                    *save_model(folder, f"m{n}", 4, 4 + n, 3),
                    *options,
                )
                for n in range(3)
            ),
            (
                "bench",
                "--update",
                "--baselines",
                "good/baselines/few.json",
                "good/baselines/small.yaml",
            ),
        ]
        save_model(folder, "child", 4, 8, 3)
        (folder / "good/baselines").mkdir(parents=True)
        (folder / "good/baselines/small.yaml").write_text(small())
        for step in steps:
            answer = ask(step, process="--live" in step)
            assert answer.code == 0, (step, answer)
        (folder / "library").rename(folder / "good/library")
        yield folder


def storm(place: Path, name: str, seed: int, count: int, every: int = 0) -> list[str]:
    """Alter a folder many times; the faults found. Each `every`-th command has its own process."""
    target = TARGETS[name]
    folder, good = place / target.folder, place / "good" / target.folder
    for needed in {"library", target.folder}:
        damage.restore(place / needed, place / "good" / needed)
    answers = {}
    for command in target.commands:
        answers[command] = ask(command)
        assert answers[command].code == 0, (command, answers[command])
    faults, codes = [], Counter[int]()
    for number in range(count):
        rng = Random(f"{name} {seed} {number}")
        damage.restore(folder, good)
        what = damage.alter(folder, rng)
        command = rng.choice(target.commands)
        try:
            answer = ask(command, process=bool(every) and number % every == 0)
        except Hung:
            faults.append(f"{name} {seed} {number}: {what}: {' '.join(command)}: hung")
            continue
        codes[answer.code] += 1
        if wrong := fault(answer, answers[command], name):
            lines = answer.err.strip().splitlines() or answer.out.strip().splitlines()
            last = lines[-1][:300] if lines else ""
            faults.append(f"{name} {seed} {number}: {what}: {' '.join(command)}: {wrong}: {last}")
    print(
        f"{name}, seed {seed}: {count} alterations, exit codes {dict(sorted(codes.items()))}, "
        f"{len(faults)} faults",
        *faults,
        sep="\n",
    )
    return faults


@pytest.mark.parametrize("name", TARGETS)
def test_altered_folders_are_refused(place: Path, name: str) -> None:
    assert storm(place, name, 1, 5 if name == "bench" else 25) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_storm_of_altered_folders(place: Path, name: str) -> None:
    """`WATTKEEPER_FUZZ` is the seed and the number of alterations of each kind of folder."""
    seed, count = map(int, os.environ.get("WATTKEEPER_FUZZ", "17 450").split())
    count = count // 10 if name == "bench" else count
    assert storm(place, name, seed, count, every=45) == []


def test_a_command_that_computes_for_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LONGEST_CPU_S", 0.05)
    before = signal.getsignal(signal.SIGPROF)

    def compute() -> None:
        while True:
            pass

    with pytest.raises(Hung), limited():
        compute()
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0
